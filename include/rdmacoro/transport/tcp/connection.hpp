// tcp_connection: an open connection that no link has taken yet.
#pragma once

#include <rdmacoro/transport/detail/core_handle.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>

namespace rdmacoro {

/// A connected and greeted socket; becomes a link by `tcp::link<Sink>(std::move(connection), sink)`. Nothing is read from
/// it before, so what the peer sends meanwhile is not lost. Closes when destroyed. Must not outlive its domain.
class tcp_connection : public detail::core_handle<detail::tcp_core> {
public:
    using core_handle::core_handle;
};

}  // namespace rdmacoro
