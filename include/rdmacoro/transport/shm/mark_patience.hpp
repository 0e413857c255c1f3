// How long a domain waits for peers that leave their marks on memory standing: one account for all of them.
#pragma once

#include <algorithm>
#include <chrono>

namespace rdmacoro::detail::shm {

/// A peer marks a region for one piece of a copy, far less than a millisecond. One that leaves its mark standing was stopped
/// in the middle, or breaks the protocol. All such peers of a domain together may hold its scheduler up for `most`, and after
/// that for a `refill`-th of the time that passes, or `least` for each wait.
class mark_patience {
public:
    using clock = std::chrono::steady_clock;
    static constexpr clock::duration most = std::chrono::seconds(1);
    static constexpr clock::duration least = std::chrono::milliseconds(2);
    static constexpr int refill = 20;

    /// How long a wait that begins at `now` may take.
    [[nodiscard]] clock::duration allowance(clock::time_point now) noexcept {
        left_ = std::min(most, left_ + (now - refilled_) / refill);
        refilled_ = now;
        return std::max(least, left_);
    }
    /// A wait has taken so long.
    void spend(clock::duration waited) noexcept {
        left_ = waited < left_ ? left_ - waited : clock::duration::zero();
    }

private:
    clock::duration left_ = most;
    clock::time_point refilled_ = clock::now();
};

/// One wait, for the marks of one or of many peers. The clock is read first when there is something to wait for.
class mark_wait {
public:
    /// An honest peer may lose its core in the middle of a piece for as long as its kernel likes: also where a message waits, it
    /// has all that is left.
    explicit mark_wait(mark_patience& patience) noexcept : patience_(patience) {}
    mark_wait(const mark_wait&) = delete;
    mark_wait& operator=(const mark_wait&) = delete;
    ~mark_wait() {
        if (began_ != clock::time_point{}) patience_.spend(clock::now() - began_);
    }

    /// Whether it has taken as long as it may.
    [[nodiscard]] bool over() noexcept {
        const clock::time_point now = clock::now();
        if (began_ == clock::time_point{}) {
            began_ = now;
            until_ = now + patience_.allowance(now);
        }
        return now >= until_;
    }

private:
    using clock = mark_patience::clock;

    mark_patience& patience_;
    clock::time_point began_{};
    clock::time_point until_{};
};

}  // namespace rdmacoro::detail::shm
