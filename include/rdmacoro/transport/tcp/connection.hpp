// tcp_connection: an open connection that has not become a link yet.
#pragma once

#include <rdmacoro/transport/detail/session_handle.hpp>
#include <rdmacoro/transport/tcp/session.hpp>

namespace rdmacoro {

/// A connected and greeted socket; becomes a link by `tcp::link<Sink>(std::move(connection), sink)`. Nothing is read
/// from it before, so the peer's messages sent meanwhile are not lost. Closes when destroyed. Must not outlive its
/// domain.
class tcp_connection : public detail::session_handle<detail::tcp_session> {
public:
    using session_handle::session_handle;
};

}  // namespace rdmacoro
