// Reporting stalls.
#pragma once

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/detail/stall_watch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD stall_watch::stall_watch(scheduler& owner) noexcept : owner_(owner) {
    timer_.self = this;
    timer_.expired = [](timer_node& timer) noexcept { static_cast<hook&>(timer).self->look(); };
}

RDMACORO_COLD stall_watch::~stall_watch() { owner_.remove_timer(timer_); }

RDMACORO_COLD void stall_watch::set(duration limit) {
    owner_.remove_timer(timer_);
    limit_ = limit;
    seen_.clear();
    reported_ = false;
    if (limit > duration::zero()) begin_again();
}

RDMACORO_COLD void stall_watch::begin_again() noexcept {
    timer_.deadline = deadline_after(owner_.now(), std::max(duration(1), limit_ / looks));
    owner_.add_timer(timer_);
}

RDMACORO_COLD void stall_watch::look() noexcept {
    try {
        const time_point now = owner_.now();
        const description pending = owner_.describe();
        if (!same_as_before(pending, now)) {
            unchanged_since_ = now;
            reported_ = false;
        } else if (!reported_ && now - unchanged_since_ >= limit_) {
            reported_ = true;
            ++reports_;
            owner_.print_description("nothing moves on this scheduler");
        }
    } catch (...) {
        // Memory is short: it looks again.
    }
    begin_again();
}

RDMACORO_COLD int stall_watch::by_id(const void* a, const void* b) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(static_cast<const seen*>(a)->id);
    const auto second = reinterpret_cast<std::uintptr_t>(static_cast<const seen*>(b)->id);
    return first < second ? -1 : first > second ? 1 : 0;
}

RDMACORO_COLD const stall_watch::seen* stall_watch::find(const pending_operation& one) const noexcept {
    if (seen_.empty()) return nullptr;
    const seen wanted{one.id, one.serial, 0, {}};
    const auto* const at =
        static_cast<const seen*>(std::bsearch(&wanted, seen_.data(), seen_.size(), sizeof(seen), &by_id));
    return at != nullptr && at->serial == one.serial ? at : nullptr;
}

RDMACORO_COLD bool stall_watch::same_as_before(const description& now_pending, time_point now) {
    plain_vector<seen> fresh;
    bool same = true;
    for (const pending_operation& one : now_pending.operations()) {
        if (one.next == next_actor::time) continue;
        const seen* const before = find(one);
        same = same && before != nullptr && before->moved == one.moved;
        fresh.push_back({one.id, one.serial, one.moved, before != nullptr ? before->first : now});
    }
    same = same && !fresh.empty() && fresh.size() == seen_.size();
    if (!fresh.empty()) std::qsort(fresh.data(), fresh.size(), sizeof(seen), &by_id);
    seen_ = std::move(fresh);
    return same;
}

RDMACORO_COLD void stall_watch::complete(description& found, time_point now) const {
    found.each([&](pending_operation& one) {
        const seen* const before = one.waited ? nullptr : find(one);
        if (before == nullptr) return;
        one.waited = now - before->first;
        one.at_least = true;
    });
}

}  // namespace rdmacoro::detail
