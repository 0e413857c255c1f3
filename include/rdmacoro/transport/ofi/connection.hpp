// ofi_connection: an open connection that no link has taken yet.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/detail/session_handle.hpp>
#include <rdmacoro/transport/ofi/engine.hpp>

#include <string>

namespace rdmacoro {

/// Two endpoints that know each other's addresses; becomes a link by `ofi<Profile>::link<Sink>(std::move(connection), sink)`.
/// Messages that arrive before then wait. Closes when destroyed. Must not outlive its domain.
class ofi_connection : public detail::session_handle<detail::fabric::session> {
public:
    using session_handle::session_handle;
};

namespace detail::fabric {

[[nodiscard]] task<ofi_connection> connect(engine& by, inet_address address);

/// Of a domain without an endpoint: "the domain is broken (read the completion queue: Queue has been overrun); open another".
[[nodiscard]] std::string broken_text(const engine& by);

}  // namespace detail::fabric
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/connection.ipp>
#endif
