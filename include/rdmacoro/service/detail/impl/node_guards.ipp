// Bodies of node_guards.hpp.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/detail/node_guards.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD task<> room_for_stranger(node_core& of) {
    const std::size_t most = of.options.unnamed_connections;
    while (of.strangers >= most) {
        node_stranger* const oldest = of.silent.front();
        duration left = duration::max();
        if (oldest != nullptr) {
            left = oldest->since() + of.options.hello_limit / 10 - of.owner.now();
            if (left <= duration::zero()) {
                oldest->give_way();
                if (of.strangers < most) break;
                left = duration::max();
            }
        }
        const result<void> gone = co_await as_result(timeout(of.stranger_gone.wait(), left));
        if (!gone && gone.error() != errc::timed_out) throw error(gone.error());
    }
}

}  // namespace rdmacoro::detail
