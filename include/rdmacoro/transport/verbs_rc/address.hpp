// Addresses of the verbs transport: "host:port", "[v6]:port", with or without "verbs://" before it.
#pragma once

#include <rdmacoro/transport/tcp/address.hpp>

#include <string>
#include <string_view>

namespace rdmacoro::detail::verbs {

/// Throws `errc::address_invalid`.
[[nodiscard]] inline tcp_address parse_address(std::string_view text) {
    constexpr std::string_view scheme = "verbs://";
    const std::string whole(text);
    const auto refuse = [&](const std::string& why) {
        throw_error(
            errc::address_invalid,
            "verbs address \"" + whole + "\": " + why +
                "; write host:port or [v6 address]:port with an IP address of the peer's device, such as "
                "192.168.7.1:7471");
    };
    if (text.substr(0, scheme.size()) == scheme) {
        text.remove_prefix(scheme.size());
    } else if (text.find("://") != std::string_view::npos) {
        refuse("not a verbs:// address");
    }
    tcp_address parsed;
    try {
        parsed = tcp_address::parse(text);
    } catch (const error&) {
        refuse("no host and port, or not good ones");
    }
    parsed.whole = whole;
    return parsed;
}

[[nodiscard]] inline std::string url_of(const tcp_endpoint& endpoint) { return "verbs://" + endpoint.text(); }

/// The same host, whatever the port.
[[nodiscard]] inline bool same_address(const tcp_endpoint& a, const tcp_endpoint& b) noexcept {
    if (a.address.ss_family != b.address.ss_family) return false;
    if (a.address.ss_family == AF_INET)
        return reinterpret_cast<const sockaddr_in&>(a.address).sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in&>(b.address).sin_addr.s_addr;
    return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a.address).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(b.address).sin6_addr, sizeof(in6_addr)) == 0;
}

[[nodiscard]] inline std::uint16_t port_of(const tcp_endpoint& endpoint) noexcept {
    return ntohs(endpoint.address.ss_family == AF_INET6
                     ? reinterpret_cast<const sockaddr_in6&>(endpoint.address).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(endpoint.address).sin_port);
}
inline void set_port(tcp_endpoint& endpoint, std::uint16_t port) noexcept {
    if (endpoint.address.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6&>(endpoint.address).sin6_port = htons(port);
    } else {
        reinterpret_cast<sockaddr_in&>(endpoint.address).sin_port = htons(port);
    }
}
[[nodiscard]] inline tcp_endpoint endpoint_of(const sockaddr* address) noexcept {
    tcp_endpoint made;
    if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return made;
    made.bytes = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&made.address, address, made.bytes);
    return made;
}

}  // namespace rdmacoro::detail::verbs
