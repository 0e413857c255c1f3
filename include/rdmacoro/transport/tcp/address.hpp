// Addresses of the tcp transport: "host:port", "[v6]:port", with or without "tcp://" before it.
#pragma once

#include <rdmacoro/transport/detail/inet_address.hpp>

#include <string_view>

namespace rdmacoro::detail {

/// Throws `errc::address_invalid`.
[[nodiscard]] inline inet_address parse_tcp_address(std::string_view text) {
    return inet_address::parse("tcp", text, ", such as 127.0.0.1:7471");
}

}  // namespace rdmacoro::detail
