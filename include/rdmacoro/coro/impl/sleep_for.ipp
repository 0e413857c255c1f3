// Sleeping until a timer expires.
#pragma once

#include <rdmacoro/coro/sleep_for.hpp>

namespace rdmacoro {

RDMACORO_DECL void sleep_operation::expired(detail::timer_node& timer) noexcept {
    static_cast<timer_hook&>(timer).self->complete();
}

RDMACORO_DECL void sleep_operation::start() noexcept {
    if (after_ != absolute) timer_.deadline = detail::deadline_after(owner_->now(), after_);
    timer_.self = this;
    timer_.of_sleep = described_;
    timer_.expired = &expired;
    owner_->add_timer(timer_);
}

RDMACORO_DECL void sleep_operation::cancel() noexcept {
    owner_->remove_timer(timer_);
    canceled_ = true;
    complete();
}

RDMACORO_DECL result<> sleep_operation::outcome() noexcept {
    if (canceled_) return errc::canceled;
    return {};
}

}  // namespace rdmacoro
