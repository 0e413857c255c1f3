// turn_for_others, unless_stopped: for tasks that may end without having waited.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <coroutine>

namespace rdmacoro::detail {

/// Awaited by a task that may end at once: where so many operations have ended at once that others must have their turn, they have it. A
/// stop request does not end it.
class [[nodiscard]] turn_for_others : private ready_node {
public:
    void bind(const environment& env) noexcept {
        owner_ = env.owner;
        stop = env.stop;
    }
    [[nodiscard]] bool await_ready() const noexcept { return owner_ == nullptr || owner_->may_go_on(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept {
        waiter = awaiting;
        owner_->make_ready(*this);
    }
    static void await_resume() noexcept {}

private:
    scheduler* owner_ = nullptr;
};

/// The same, first in a task that does nothing where its token is stopped already: ends with `errc::canceled` then. A stop request that
/// comes later does not end it.
class [[nodiscard]] unless_stopped : public turn_for_others {
public:
    void bind(const environment& env) noexcept {
        stopped_ = env.stop.stop_requested();
        turn_for_others::bind(env);
    }
    void await_resume() const {
        if (stopped_) throw_error(errc::canceled);
    }

private:
    bool stopped_ = false;
};

}  // namespace rdmacoro::detail
