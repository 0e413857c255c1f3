// Bodies of in_turns.hpp.
#pragma once

#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/detail/in_turns.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL task<> work_in_turns::pieces() {
    do {
        co_await yield();
    } while (next_piece());
}

}  // namespace rdmacoro::detail
