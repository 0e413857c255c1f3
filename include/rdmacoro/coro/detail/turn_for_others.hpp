// turn_for_others: for tasks that may end without having waited.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>

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

}  // namespace rdmacoro::detail
