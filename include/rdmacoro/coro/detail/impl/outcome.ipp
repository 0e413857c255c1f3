// Exceptions of outcomes.
#pragma once

#include <rdmacoro/coro/detail/outcome.hpp>
#include <rdmacoro/coro/error.hpp>

#include <cstdio>

namespace rdmacoro::detail {

RDMACORO_COLD void outcome_base::check() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, {}));
}

RDMACORO_COLD std::exception_ptr canceled_exception() noexcept {
    try {
        throw_error(errc::canceled);
    } catch (...) {
        return std::current_exception();
    }
}

RDMACORO_COLD bool is_canceled(const std::exception_ptr& failure) noexcept {
    try {
        std::rethrow_exception(failure);
    } catch (const std::system_error& ended) {
        return ended.code() == errc::canceled;
    } catch (...) {
        return false;
    }
}

RDMACORO_COLD void report_dropped(const char* where, const std::exception_ptr& failure) noexcept {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& dropped) {
        std::fprintf(stderr, "rdmacoro: %s: %s\n", where, dropped.what());
    } catch (...) {
        std::fprintf(stderr, "rdmacoro: %s: an exception that is no std::exception\n", where);
    }
}

}  // namespace rdmacoro::detail
