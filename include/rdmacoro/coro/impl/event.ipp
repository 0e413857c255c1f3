// Waiting for an event.
#pragma once

#include <rdmacoro/coro/event.hpp>

namespace rdmacoro {

RDMACORO_DECL event::~event() {
    if (!waiting_.empty()) detail::fatal("an event was destroyed while somebody waits for it");
}

RDMACORO_DECL void event::set() noexcept {
    set_ = true;
    while (wait_operation* const first = waiting_.pop_front()) first->complete_by_user();
}

RDMACORO_DECL void event::wait_operation::start() noexcept {
    if (event_->set_) {
        complete();
    } else {
        static constexpr detail::wait_facts facts{"event wait", "the event is not set",
                                                  next_actor::this_program};
        event_->waiting_.push_back(*this);
        park(*this, facts);
    }
}

RDMACORO_DECL void event::wait_operation::cancel() noexcept {
    unlink();
    finish_canceled();
    complete();
}

RDMACORO_DECL result<> event::wait_operation::outcome() noexcept {
    return canceled_ ? result<>(errc::canceled) : result<>();
}

}  // namespace rdmacoro
