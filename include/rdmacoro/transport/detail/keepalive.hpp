// Probes of the kernel over idle TCP connections, which notice a host that vanished.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>

namespace rdmacoro::detail {

/// Sets the kernel's probes of an idle connection: a host that answers none for `limit` is dead.
RDMACORO_DECL void set_keepalive(int fd, duration limit) noexcept;

/// The same for a connection with a short exchange that is idle afterwards: data that it sent may stay unacknowledged for `limit`, too.
RDMACORO_DECL void set_silence_limit(int fd, duration limit) noexcept;

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/keepalive.ipp>
#endif
