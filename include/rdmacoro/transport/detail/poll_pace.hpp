// poll_pace: which turns of the scheduler poll a network where a poll costs a system call, or as much as one.
#pragma once

#include <rdmacoro/coro/clock.hpp>

#include <algorithm>
#include <chrono>

namespace rdmacoro::detail {

/// After a post, and while several completions came soon after each other, each turn polls. Else one turn in `rest` does, or in
/// `least_rest` while there was a completion lately, so that links of other transports, which are polled in the same turns, cost next
/// to what they cost alone. Where a poll takes longer than a microsecond, both are so many times as long as it. Needs a clock that
/// goes on.
class poll_pace {
public:
    static constexpr duration rest = std::chrono::microseconds(8);
    static constexpr duration least_rest = std::chrono::microseconds(4);
    static constexpr int polls_in_rest = 8;
    static constexpr int polls_in_least_rest = 4;
    static constexpr duration longest_poll =
        std::chrono::microseconds(20);  ///< that counts: the core may be taken away in one
    static constexpr duration lately = std::chrono::milliseconds(4);
    static constexpr unsigned polls_after_post = 64;
    static constexpr unsigned polls_when_hot = 256;
    static constexpr unsigned hot_after = 3;                          ///< polls with completions
    static constexpr duration soon = std::chrono::microseconds(100);  ///< from one to the next

    /// Whether this turn polls. `now` is `scheduler::coarse_now()`.
    [[nodiscard]] bool due(time_point now) noexcept {
        if (every_turn_ != 0) {
            --every_turn_;
            return true;
        }
        if (now - polled_ < (now - brought_ < lately ? least_rest_ : rest_)) return false;
        polled_ = now;
        return true;
    }

    /// Whether polls are so far apart that it matters little to time them.
    [[nodiscard]] bool resting() const noexcept { return every_turn_ == 0; }
    /// So long took a poll that brought nothing.
    void took(duration cost) noexcept {
        cost_ = cost < cost_ ? cost : cost_ + (std::min(cost, longest_poll) - cost_) / 8;
        rest_ = std::max(rest, polls_in_rest * cost_);
        least_rest_ = std::max(least_rest, polls_in_least_rest * cost_);
    }

    /// A poll brought completions.
    void brought(time_point now) noexcept {
        in_a_row_ = now - brought_ < soon ? in_a_row_ + 1 : 1;
        brought_ = now;
        if (in_a_row_ >= hot_after) every_turn_ = polls_when_hot;
    }

    /// Something was posted; its completion or answer may come at once.
    void posted() noexcept {
        if (every_turn_ < polls_after_post) every_turn_ = polls_after_post;
    }

private:
    duration rest_ = rest;
    duration least_rest_ = least_rest;
    duration cost_{};  // of an empty poll
    time_point polled_{};
    time_point brought_{};
    unsigned every_turn_ = polls_when_hot;  // polls
    unsigned in_a_row_ = 0;
};

}  // namespace rdmacoro::detail
