// Beginning the children of when_all and when_any.
#pragma once

#include <rdmacoro/coro/detail/fan_out.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL fan_out::~fan_out() {
    if (running_ != 0) fatal("when_all or when_any was destroyed while pending; await it first");
}

RDMACORO_DECL void fan_out::bind(const environment& env) noexcept {
    owner_ = env.owner;
    source_.follow(env.stop);
}

RDMACORO_DECL void fan_out::wait(std::coroutine_handle<> awaiting) noexcept {
    if (running_ != 0) {
        waiter_ = awaiting;
        return;
    }
    all_ended_.waiter = awaiting;
    all_ended_.stop = source_.get_token();  // a part of the awaiting coroutine's
    owner_->make_ready(all_ended_);
}

RDMACORO_DECL void fan_out::begin_with(child made) noexcept {
    ++running_;
    made.begin_now({owner_, source_.get_token()});
}

RDMACORO_DECL void fan_out::need_owner() {
    if (owner_ == nullptr) owner_ = &running_scheduler();
}

}  // namespace rdmacoro::detail
