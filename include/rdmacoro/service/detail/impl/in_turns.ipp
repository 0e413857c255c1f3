// Bodies of in_turns.hpp.
#pragma once

#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/detail/in_turns.hpp>

#include <new>

namespace rdmacoro::detail {

RDMACORO_DECL std::coroutine_handle<> work_in_turns::await_suspend(std::coroutine_handle<> awaiting) {
    try {
        return begin(pieces(), awaiting);
    } catch (const std::bad_alloc&) {}
    while (next_piece()) {}
    return awaiting;
}

RDMACORO_DECL task<> work_in_turns::pieces() {
    do {
        co_await yield();
    } while (next_piece());
}

}  // namespace rdmacoro::detail
