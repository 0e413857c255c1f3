// The grace period of an operation.
#pragma once

#include <rdmacoro/coro/without_stop.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD environment late_stop::bind(const environment& env) noexcept {
    owner_ = env.owner;
    around_ = env.stop;
    source_.belong_to(env.stop);
    return {env.owner, source_.get_token()};
}

RDMACORO_COLD void late_stop::before_wait() noexcept {
    if (owner_ == nullptr) owner_ = &running_scheduler();
    waits_ = true;
    owner_->unstopped_wait_began();
    if (around_.stop_requested()) return set_timer();
    stopped_.self = this;
    stopped_.attach(
        around_, [](local_stop_callback& hook) noexcept { static_cast<stop_hook&>(hook).self->set_timer(); });
}

RDMACORO_COLD void late_stop::set_timer() noexcept {
    timer_.self = this;
    timer_.deadline = deadline_after(owner_->now(), grace_);
    timer_.expired = [](timer_node& timer) noexcept {
        static_cast<timer_hook&>(timer).self->source_.request_stop();
    };
    owner_->add_timer(timer_);
}

RDMACORO_COLD void late_stop::after_end() noexcept {
    stopped_.detach();
    if (std::exchange(waits_, false)) owner_->unstopped_wait_ended();
    if (timer_.queued()) owner_->remove_timer(timer_);
}

}  // namespace rdmacoro::detail
