// yield(): lets everything else that is ready go first.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/scheduler.hpp>

namespace rdmacoro {

/// What `yield` gives. Described at `yield`.
class yield_operation : private detail::ready_node {
public:
    using value_type = void;

    void bind(const environment& env) noexcept {
        owner_ = env.owner;
        stop = env.stop;
        canceled_ = stop.stop_requested();
    }
    bool await_ready() const noexcept { return canceled_; }
    void await_suspend(std::coroutine_handle<> awaiting) {
        if (owner_ == nullptr) owner_ = &detail::running_scheduler();
        waiter = awaiting;
        owner_->make_ready(*this);
    }
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
/// Completes: once everything that was ready before it has run and the network has been polled.
/// Buffers: none.
/// Concurrency: any number at a time, in turn.
/// Errors: none but cancellation.
/// Cancellation: with a stopped token it ends at once with `errc::canceled`; later stops don't matter to it.
/// Example:
///     for (auto& part : large_job) {
///         compute(part);
///         co_await yield();
///     }
[[nodiscard]] inline yield_operation yield() noexcept { return {}; }

}  // namespace rdmacoro
