// A set of bytes of memory.
#pragma once

#include <rdmacoro/transport/sim/memory_watch.hpp>

#include <algorithm>

namespace rdmacoro::detail::sim {

RDMACORO_DECL void memory_watch::add(std::span<const std::byte> memory) {
    if (memory.empty()) return;
    range fresh = range_of(memory);
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), fresh.first,
                                        [](const range& r, std::uintptr_t at) { return r.end < at; });
    auto last = first;
    for (; last != ranges_.end() && last->first <= fresh.end; ++last) {
        fresh.first = std::min(fresh.first, last->first);
        fresh.end = std::max(fresh.end, last->end);
    }
    ranges_.insert(ranges_.erase(first, last), fresh);
}

RDMACORO_DECL void memory_watch::remove(std::span<const std::byte> memory) {
    if (memory.empty()) return;
    const range gone = range_of(memory);
    for (std::size_t i = 0; i < ranges_.size();) {
        const range r = ranges_[i];
        if (r.end <= gone.first || gone.end <= r.first) {
            ++i;
            continue;
        }
        ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(i));
        if (gone.end < r.end)
            ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(i), {gone.end, r.end});
        if (r.first < gone.first) {
            ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(i), {r.first, gone.first});
            ++i;
        }
    }
}

RDMACORO_DECL bool memory_watch::overlaps(std::span<const std::byte> memory) const noexcept {
    if (ranges_.empty() || memory.empty()) return false;
    const range asked = range_of(memory);
    const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), asked.first,
                                     [](std::uintptr_t first, const range& r) { return first < r.end; });
    return at != ranges_.end() && at->first < asked.end;
}

RDMACORO_DECL bool memory_watch::contains(std::span<const std::byte> memory) const noexcept {
    if (memory.empty()) return true;
    const range asked = range_of(memory);
    const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), asked.first,
                                     [](std::uintptr_t first, const range& r) { return first < r.end; });
    return at != ranges_.end() && at->first <= asked.first && asked.end <= at->end;
}

}  // namespace rdmacoro::detail::sim
