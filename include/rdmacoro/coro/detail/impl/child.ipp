// How a child begins and ends.
#pragma once

#include <rdmacoro/coro/detail/child.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL child child::promise_type::get_return_object() noexcept {
    return {std::coroutine_handle<promise_type>::from_promise(*this)};
}

RDMACORO_COLD void child::promise_type::unhandled_exception() noexcept {
    for_->child_failed(std::current_exception());
}

RDMACORO_DECL std::coroutine_handle<>
child::promise_type::final_awaiter::await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
    child_owner* const of = ended.promise().for_;
    scheduler* const owner = ended.promise().get_environment().owner;
    ended.destroy();
    owner->child_ended();
    return owner->transfer(of->child_ended());
}

RDMACORO_DECL void child::begin_soon(const environment& env) noexcept {
    env.owner->child_began();
    promise_type& promise = frame.promise();
    promise.set_environment(env);
    promise.waiter = frame;
    promise.stop = env.stop;
    env.owner->make_ready(promise);
}

RDMACORO_DECL void child::begin_now(const environment& env) noexcept {
    env.owner->child_began();
    frame.promise().set_environment(env);
    env.owner->resume_child(frame);
}

}  // namespace rdmacoro::detail
