// yield(): lets all other ready coroutines run first.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/scheduler.hpp>

namespace rdmacoro {

/// The operation of `yield`. Described at `yield`.
class yield_operation : private detail::ready_node {
public:
    using value_type = void;

    void bind(const environment& env) noexcept {
        owner_ = env.owner;
        stop = env.stop;
    }
    bool await_ready() noexcept {
        canceled_ = stop.stop_requested();
        return canceled_ && (owner_ == nullptr || owner_->may_go_on());
    }
    void await_suspend(std::coroutine_handle<> awaiting);
    [[nodiscard]] bool ended_at_once() const noexcept { return canceled_; }
    void await_resume() const {
        if (canceled_) detail::throw_error(errc::canceled);
    }
    [[nodiscard]] result<> take_result() const noexcept {
        return canceled_ ? result<>(errc::canceled) : result<>();
    }

private:
    scheduler* owner_ = nullptr;
    bool canceled_ = false;
};

/// Awaitable.
/// Completes: once all coroutines that were ready before it have run and the network has been polled.
/// Buffers: none.
/// Concurrency: any number at a time.
/// Errors: none but cancellation.
/// Cancellation: with a stopped token it ends at once with `errc::canceled`; a later stop has no effect.
/// Example:
///     for (auto& part : large_job) {
///         compute(part);
///         co_await yield();
///     }
[[nodiscard]] inline yield_operation yield() noexcept { return {}; }

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/yield.ipp>
#endif
