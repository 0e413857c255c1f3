// Waiting for the permits of a semaphore.
#pragma once

#include <rdmacoro/coro/semaphore.hpp>

namespace rdmacoro {

RDMACORO_COLD semaphore::~semaphore() {
    if (!waiting_.empty()) detail::fatal("a semaphore was destroyed while somebody waits for it");
}

[[gnu::noinline]] RDMACORO_DECL void semaphore::serve() noexcept {
    for (acquire_operation* first = waiting_.front(); first != nullptr && first->count_ <= permits_;
         first = waiting_.front()) {
        permits_ -= first->count_;
        waiting_.pop_front();
        first->complete_by_user();
    }
}

RDMACORO_DECL void semaphore::acquire_operation::start() noexcept {
    if (semaphore_->try_acquire(count_)) {
        complete();
    } else {
        static constexpr detail::wait_facts facts{"semaphore acquire", "too few permits are free",
                                                  next_actor::this_program};
        semaphore_->waiting_.push_back(*this);
        if (semaphore_->described_) park(*this, facts);
    }
}

RDMACORO_COLD void semaphore::acquire_operation::cancel() noexcept {
    unlink();
    finish_canceled();
    complete();
    semaphore_->serve();  // later requests may be smaller
}

RDMACORO_DECL result<> semaphore::acquire_operation::outcome() noexcept {
    return canceled_ ? result<>(errc::canceled) : result<>();
}

}  // namespace rdmacoro
