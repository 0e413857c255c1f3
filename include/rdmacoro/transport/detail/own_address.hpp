// own_address: an address of this host that others can reach, by its network interfaces.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <string>

namespace rdmacoro::detail {

/// The address of the first interface that is up and not the loopback, in numbers: of version 4, else 6, "[v6]" in brackets. Empty: there is
/// none.
[[nodiscard]] RDMACORO_DECL std::string own_inet_address();

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/own_address.ipp>
#endif
