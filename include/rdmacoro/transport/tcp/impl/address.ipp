// Addresses of the tcp transport.
#pragma once

#include <rdmacoro/transport/tcp/address.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD inet_address parse_tcp_address(std::string_view text) {
    return inet_address::parse("tcp", text, ", such as 127.0.0.1:7471");
}

}  // namespace rdmacoro::detail
