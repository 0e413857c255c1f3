#pragma once

// A clock by which timers end a sleep late, so that a wake-up that is lost is not mended by whichever timer is due next.

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/progress_source.hpp>

#include <chrono>

#include <sys/eventfd.h>
#include <unistd.h>

namespace rdmacoro::test {

/// To be given to a scheduler as its clock, and added to it as a source. A scheduler that nothing wakes sleeps so much longer than until
/// its next timer.
class late_timers final : public clock, public progress_source {
public:
    static constexpr duration usual = std::chrono::seconds(10);
    /// What takes longer was waited for by a sleep that nothing woke. Far below that, and far above what a loaded machine takes.
    static constexpr duration woken_within = usual / 2;

    explicit late_timers(duration late = usual) noexcept : late_(late) {}
    ~late_timers() override { ::close(fd_); }

    time_point now() noexcept override {
        const time_point real = monotonic_clock::instance().now();
        return falls_asleep_ ? real - late_ : real;
    }
    bool advance_to(time_point) noexcept override { return false; }

    bool poll() noexcept override { return false; }
    void arm() noexcept override {}
    /// The scheduler asks all sources for their descriptors, then the clock for how long it may sleep.
    int wake_fd() noexcept override {
        falls_asleep_ = true;
        return fd_;
    }
    void disarm() noexcept override { falls_asleep_ = false; }

private:
    duration late_;
    int fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    bool falls_asleep_ = false;
};

}  // namespace rdmacoro::test
