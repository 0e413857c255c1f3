// Addresses of the libfabric transport: "host:port", "[v6]:port", with or without the profile's scheme before it. They name
// where the connect_info are exchanged; the provider's own addresses travel in these.
#pragma once

#include <rdmacoro/transport/detail/inet_address.hpp>

#include <string_view>

namespace rdmacoro::detail::fabric {

/// Throws `errc::address_invalid`.
[[nodiscard]] inline inet_address parse_address(std::string_view scheme, std::string_view text) {
    return inet_address::parse(scheme, text, ", such as 192.168.7.1:7471");
}

}  // namespace rdmacoro::detail::fabric
