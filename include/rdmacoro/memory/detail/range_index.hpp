// range_index: finds address ranges that lie around, within or across another.
#pragma once

#include <rdmacoro/memory/detail/unmap_watch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacoro::detail {

/// Entries sorted by the address of their `pages`. They may overlap, but none lies within another, so that their ends are
/// sorted, too: whatever contains a range stands right before the place where that range would begin.
///
/// A sorted array: looked up far more often than changed, and a change moves 24 bytes an entry. Allocates only when made.
template <class Entry>
class range_index {
public:
    /// Throws `std::bad_alloc`, or `std::length_error`.
    explicit range_index(std::size_t most) { sorted_.reserve(most); }

    [[nodiscard]] std::size_t size() const noexcept { return sorted_.size(); }
    [[nodiscard]] bool empty() const noexcept { return sorted_.empty(); }
    /// Precondition: not empty.
    [[nodiscard]] Entry* back() const noexcept { return sorted_.back().entry; }

    /// One that contains `range` and suits; null if there is none.
    template <class Suits>
    [[nodiscard]] Entry* find(const address_range& range, Suits suits) const noexcept {
        auto at = std::upper_bound(sorted_.begin(), sorted_.end(), range.start,
                                   [](std::uintptr_t start, const item& i) { return start < i.start; });
        while (at != sorted_.begin() && range.end <= (--at)->end) {
            if (suits(*at->entry)) return at->entry;
        }
        return nullptr;
    }
    /// The first that has a byte of `range`.
    [[nodiscard]] Entry* overlapping(const address_range& range) const noexcept {
        const auto at = std::upper_bound(sorted_.begin(), sorted_.end(), range.start,
                                         [](std::uintptr_t start, const item& i) { return start < i.end; });
        return at != sorted_.end() && at->start < range.end ? at->entry : nullptr;
    }
    template <class Visit>
    void for_each_within(const address_range& range, Visit visit) const noexcept {
        for (auto at = lower(range.start); at != sorted_.end() && at->end <= range.end; ++at)
            visit(*at->entry);
    }
    /// The first that `range` contains.
    [[nodiscard]] Entry* within(const address_range& range) const noexcept {
        const auto at = lower(range.start);
        return at != sorted_.end() && at->end <= range.end ? at->entry : nullptr;
    }

    /// Preconditions: fewer than `most`; none contains it or lies within it.
    void insert(Entry& entry) noexcept {
        sorted_.insert(lower(entry.pages.start), item{entry.pages.start, entry.pages.end, &entry});
    }
    void erase(const Entry& entry) noexcept { sorted_.erase(lower(entry.pages.start)); }

private:
    struct item {
        std::uintptr_t start;
        std::uintptr_t end;
        Entry* entry;
    };
    typename std::vector<item>::const_iterator lower(std::uintptr_t start) const noexcept {
        return std::lower_bound(sorted_.begin(), sorted_.end(), start,
                                [](const item& i, std::uintptr_t from) { return i.start < from; });
    }

    std::vector<item> sorted_;
};

}  // namespace rdmacoro::detail
