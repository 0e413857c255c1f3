// The clock that all time goes through, so that a simulation can replace it.
#pragma once

#include <chrono>

namespace rdmacoro {

using duration = std::chrono::nanoseconds;
using time_point = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

/// Where a scheduler reads the time and waits for it. `now` never goes back.
class clock {
public:
    clock() = default;
    clock(const clock&) = delete;
    clock& operator=(const clock&) = delete;
    virtual ~clock() = default;

    [[nodiscard]] virtual time_point now() noexcept = 0;

    /// Called when nothing is left to do before `deadline`, the next timer. True: this clock is now at `deadline`
    /// (virtual time). False: time passes by itself, wait for it.
    [[nodiscard]] virtual bool advance_to(time_point deadline) noexcept = 0;
};

/// The system's monotonic clock.
class monotonic_clock final : public clock {
public:
    time_point now() noexcept override { return std::chrono::steady_clock::now(); }
    bool advance_to(time_point) noexcept override { return false; }

    /// The one that schedulers use when given none.
    static monotonic_clock& instance() noexcept {
        static monotonic_clock only;
        return only;
    }
};

/// A clock that stands still until it is told to move, or until its scheduler has nothing to do before the next timer:
/// tests of hours run in microseconds.
class manual_clock final : public clock {
public:
    time_point now() noexcept override { return now_; }
    bool advance_to(time_point deadline) noexcept override {
        if (deadline > now_) now_ = deadline;
        return true;
    }
    void advance(duration by) noexcept { now_ += by; }

private:
    time_point now_{};
};

}  // namespace rdmacoro
