#pragma once

// A node without transports, for tests of the parts of nodes.

#include "support/run.hpp"

#include <rdmacoro/service/detail/node_core.hpp>

namespace rdmacoro::test {

/// Counts what it is asked for.
class bare_core final : public rdmacoro::detail::node_core {
public:
    using node_core::node_core;
    void begin_close(rdmacoro::detail::node_record&, rdmacoro::detail::leave_reason) override {}
    void begin_connect(rdmacoro::detail::node_peer& to) override {
        ++connects;
        to.connecting = true;
    }
    int connects = 0;
};

/// Node 5.
struct bare_node {
    virtual_time world;
    node_options options;
    rdmacoro::detail::counted_ptr<bare_core> core{new bare_core(world.on, 5, options)};
};

}  // namespace rdmacoro::test
