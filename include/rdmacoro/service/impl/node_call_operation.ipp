// The errors of calls to nodes.
#pragma once

#include <rdmacoro/service/detail/node_wire.hpp>
#include <rdmacoro/service/node_call_operation.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD void throw_of_node(node_id to, generation born, const error& failed) {
    throw error(failed.code(), node_text(to, born) + ": " + failed.context(), failed.facts());
}

}  // namespace rdmacoro::detail
