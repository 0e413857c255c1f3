// Broken preconditions of started operations.
#pragma once

#include <rdmacoro/coro/start.hpp>

#include <exception>

namespace rdmacoro::detail {

RDMACORO_COLD void check_abandoned() noexcept {
    // Exceptions under way below the running scheduler unwind what called it, not the coroutine that started this.
    const scheduler* const on = scheduler::current();
    const int below = on != nullptr ? on->exceptions_below() : 0;
    if (std::uncaught_exceptions() <= below) fatal("a started operation was never awaited");
}

RDMACORO_COLD void throw_outside() {
    throw_error(errc::invalid_argument, "start: no scheduler runs on this thread");
}

}  // namespace rdmacoro::detail
