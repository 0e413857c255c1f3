// Addresses of the libfabric transport: "host:port", "[v6]:port", with or without the profile's scheme before it. They name
// where the cards are exchanged; the provider's own addresses travel in these.
#pragma once

#include <rdmacoro/transport/tcp/address.hpp>

#include <string>
#include <string_view>

namespace rdmacoro::detail::fabric {

/// Throws `errc::address_invalid`.
[[nodiscard]] inline tcp_address parse_address(std::string_view scheme, std::string_view text) {
    const std::string prefix = std::string(scheme) + "://";
    const std::string whole(text);
    const auto refuse = [&](const std::string& why) {
        throw_error(errc::address_invalid,
                    std::string(scheme) + " address \"" + whole + "\": " + why +
                        "; write host:port or [v6 address]:port, such as 192.168.7.1:7471");
    };
    if (text.substr(0, prefix.size()) == prefix) {
        text.remove_prefix(prefix.size());
    } else if (text.find("://") != std::string_view::npos) {
        refuse("not a " + prefix + " address");
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

[[nodiscard]] inline std::string url_of(std::string_view scheme, const tcp_endpoint& endpoint) {
    return std::string(scheme) + "://" + endpoint.text();
}

}  // namespace rdmacoro::detail::fabric
