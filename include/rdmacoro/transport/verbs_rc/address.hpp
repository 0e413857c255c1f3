// Addresses of the verbs transport: "host:port", "[v6]:port", with or without "verbs://" before it.
#pragma once

#include <rdmacoro/transport/detail/inet_address.hpp>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace rdmacoro::detail::verbs {

/// Throws `errc::address_invalid`.
[[nodiscard]] inline inet_address parse_address(std::string_view text) {
    return inet_address::parse("verbs", text,
                               " with an IP address of the peer's device, such as 192.168.7.1:7471");
}

/// The same host, with any port.
[[nodiscard]] inline bool same_address(const inet_endpoint& a, const inet_endpoint& b) noexcept {
    if (a.address.ss_family != b.address.ss_family) return false;
    if (a.address.ss_family == AF_INET)
        return reinterpret_cast<const sockaddr_in&>(a.address).sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in&>(b.address).sin_addr.s_addr;
    return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a.address).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(b.address).sin6_addr, sizeof(in6_addr)) == 0;
}

[[nodiscard]] inline std::uint16_t port_of(const inet_endpoint& endpoint) noexcept {
    return ntohs(endpoint.address.ss_family == AF_INET6
                     ? reinterpret_cast<const sockaddr_in6&>(endpoint.address).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(endpoint.address).sin_port);
}
inline void set_port(inet_endpoint& endpoint, std::uint16_t port) noexcept {
    if (endpoint.address.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6&>(endpoint.address).sin6_port = htons(port);
    } else {
        reinterpret_cast<sockaddr_in&>(endpoint.address).sin_port = htons(port);
    }
}
[[nodiscard]] inline inet_endpoint endpoint_of(const sockaddr* address) noexcept {
    inet_endpoint made;
    if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return made;
    made.bytes = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&made.address, address, made.bytes);
    return made;
}

}  // namespace rdmacoro::detail::verbs
