// verbs_connection: an open connection that no link has taken yet.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/detail/session_handle.hpp>
#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <string>

namespace rdmacoro {

/// A connected queue pair; becomes a link by `verbs_rc::link<Sink>(std::move(connection), sink)`. Messages that arrive
/// before then wait. Closes when destroyed. Must not outlive its domain.
class verbs_connection : public detail::session_handle<detail::verbs::session> {
public:
    using session_handle::session_handle;
};

namespace detail::verbs {

[[nodiscard]] task<verbs_connection> connect(engine& by, inet_address address);

/// The device was taken away, and its domain can do nothing more.
[[gnu::cold, noreturn]] RDMACORO_DECL void throw_device_gone(const engine& of, const std::string& action);

}  // namespace detail::verbs
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/connection.ipp>
#endif
