// sleep_for(duration) and sleep_until(time_point), on the scheduler's clock.
#pragma once

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/timer.hpp>

namespace rdmacoro {

/// The operation of `sleep_for` and `sleep_until`. Described at `sleep_for`.
class sleep_operation final : public basic_operation<sleep_operation, void> {
    using base = basic_operation<sleep_operation, void>;

public:
    /// `described`: unless it is a pause of a step that is described itself.
    explicit sleep_operation(duration after, bool described = true) noexcept
        : base(nullptr), after_(after), described_(described) {}
    explicit sleep_operation(time_point deadline) noexcept : base(nullptr) { timer_.deadline = deadline; }

    /// Only before it begins.
    sleep_operation(sleep_operation&& other) noexcept
        : base(std::move(other)), after_(other.after_), described_(other.described_) {
        timer_.deadline = other.timer_.deadline;
    }

private:
    friend base;

    struct timer_hook : detail::timer_node {
        sleep_operation* self = nullptr;
    };
    static void expired(detail::timer_node& timer) noexcept;
    static constexpr duration absolute = duration::min();

    void start() noexcept;
    void cancel() noexcept;
    void finish_canceled() noexcept { canceled_ = true; }
    result<> outcome() noexcept;

    duration after_ = absolute;
    timer_hook timer_;
    bool canceled_ = false;
    bool described_ = true;
};

/// Awaitable.
/// Completes: once `after` has passed on the scheduler's clock since it began, never earlier; zero or less lets the
/// scheduler take a turn first.
/// Buffers: none.
/// Concurrency: any number at a time.
/// Errors: none.
/// Cancellation: ends at once with `errc::canceled`.
/// Example:
///     co_await sleep_for(10ms);
[[nodiscard]] inline sleep_operation sleep_for(duration after) noexcept {
    return sleep_operation(after > duration::zero() ? after : duration::zero());
}

/// Awaitable.
/// Completes: when the scheduler's clock has reached `deadline`; after a turn when it already has.
/// Buffers: none.
/// Concurrency: any number at a time.
/// Errors: none.
/// Cancellation: ends at once with `errc::canceled`.
/// Example:
///     co_await sleep_until(next_tick);
[[nodiscard]] inline sleep_operation sleep_until(time_point deadline) noexcept {
    return sleep_operation(deadline);
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/sleep_for.ipp>
#endif
