// Stop requests within one scheduler.
#pragma once

#include <rdmacoro/coro/local_stop.hpp>

namespace rdmacoro {

RDMACORO_COLD bool local_stop_token::is_part_of(const local_stop_source& whole) const noexcept {
    const local_stop_source* at = source_;
    while (at != nullptr && at != &whole) at = at->whole_;
    return at != nullptr;
}

RDMACORO_DECL void local_stop_source::follow(local_stop_token parent) noexcept {
    belong_to(parent);
    if (parent.stop_requested()) {
        request_stop();
    } else if (parent.stop_possible()) {
        upstream_.owner = this;
        upstream_.attach(parent, [](local_stop_callback& self) noexcept {
            static_cast<link_up&>(self).owner->request_stop();
        });
    }
}

RDMACORO_COLD void local_stop_source::unfollow() noexcept {
    upstream_.detach();
    belong_to({});
}

RDMACORO_DECL local_stop_token local_stop_source::belong_to(local_stop_token whole) noexcept {
    local_stop_source* const former = whole_;
    whole_ = whole.source_;
    return local_stop_token(former);
}

RDMACORO_COLD void local_stop_source::request_stop() noexcept {
    if (requested_) return;
    requested_ = true;
    while (local_stop_callback* callback = callbacks_.pop_front()) callback->call_(*callback);
}

}  // namespace rdmacoro
