// Bodies of detail/refusal_timer.hpp.
#pragma once

#include <rdmacoro/protocol/detail/refusal_timer.hpp>

#include <rdmacoro/coro/error.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD bool is_refusal(std::error_code outcome) noexcept {
    return outcome == errc::bad_key || outcome == errc::out_of_bounds || outcome == errc::access_denied;
}

RDMACORO_COLD refusal_timer::refusal_timer(void* owner, void (*call)(void* owner) noexcept) noexcept
    : owner_(owner), call_(call) {
    expired = [](timer_node& timer) noexcept {
        auto& self = static_cast<refusal_timer&>(timer);
        self.call_(self.owner_);
    };
}

RDMACORO_COLD void refusal_timer::start(scheduler& on, time_point until) noexcept {
    if (queued()) return;
    on_ = &on;
    deadline = until;
    on.add_timer(*this);
}

RDMACORO_COLD void refusal_timer::stop() noexcept {
    if (queued()) on_->remove_timer(*this);
}

}  // namespace rdmacoro::detail
