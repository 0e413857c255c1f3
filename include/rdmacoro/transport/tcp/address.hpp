// Addresses of the tcp transport: "host:port", "[v6]:port", with or without "tcp://" before it.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <string_view>

namespace rdmacoro::detail {

/// Throws `errc::address_invalid`.
[[nodiscard]] RDMACORO_DECL inet_address parse_tcp_address(std::string_view text);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/address.ipp>
#endif
