// Broken preconditions of operations.
#pragma once

#include <rdmacoro/coro/operation.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD void operation_base::resume_later(std::coroutine_handle<> awaiting) noexcept {
    waiter = awaiting;
    owner_->make_ready(*this);
}

RDMACORO_COLD void operation_base::awaited_again() noexcept {
    fatal("an operation that had ended was awaited again; each is awaited once: make a new one for the next "
          "message or wait");
}
RDMACORO_COLD void operation_base::moved_too_late() noexcept {
    fatal("an operation was moved after it had begun");
}
RDMACORO_COLD void operation_base::destroyed_too_early() noexcept {
    fatal("an operation was destroyed while pending; await it first");
}

}  // namespace rdmacoro::detail
