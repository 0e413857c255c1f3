// The source of all time, which a simulation can replace.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <chrono>

namespace rdmacoro {

using duration = std::chrono::nanoseconds;  ///< times are in nanoseconds
/// A time of a scheduler's clock.
using time_point = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

/// The clock by which a scheduler reads the time and waits. `now` never goes back.
class clock {
public:
    clock() = default;
    clock(const clock&) = delete;
    clock& operator=(const clock&) = delete;
    RDMACORO_DECL virtual ~clock();

    /// The time; never goes back.
    [[nodiscard]] virtual time_point now() noexcept = 0;

    /// Called when nothing is left to do before `deadline`, the next timer. True: this clock is now at `deadline`
    /// (virtual time). False: time passes by itself, wait for it.
    [[nodiscard]] virtual bool advance_to(time_point deadline) noexcept = 0;
};

/// The system's monotonic clock.
class monotonic_clock final : public clock {
public:
    RDMACORO_DECL time_point now() noexcept override;
    RDMACORO_DECL bool advance_to(time_point) noexcept override;

    /// The clock of schedulers that are given none.
    static monotonic_clock& instance() noexcept;
};

/// A clock that stands still until `advance` is called, or until its scheduler has nothing to do before the next timer:
/// tests of hours run in microseconds.
class manual_clock final : public clock {
public:
    RDMACORO_DECL time_point now() noexcept override;
    RDMACORO_DECL bool advance_to(time_point deadline) noexcept override;
    /// Moves the time on.
    void advance(duration by) noexcept { now_ += by; }

private:
    time_point now_{};
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/clock.ipp>
#endif
