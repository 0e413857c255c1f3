// Yielding to other ready coroutines.
#pragma once

#include <rdmacoro/coro/yield.hpp>

namespace rdmacoro {

RDMACORO_DECL void yield_operation::await_suspend(std::coroutine_handle<> awaiting) {
    if (owner_ == nullptr) owner_ = &detail::running_scheduler();
    waiter = awaiting;
    owner_->make_ready(*this);
}

}  // namespace rdmacoro
