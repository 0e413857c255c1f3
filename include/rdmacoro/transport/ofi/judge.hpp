// Whether two endpoints fit each other, by what their cards say. Needs no libfabric: formats of addresses have its numbers here.
#pragma once

#include <rdmacoro/transport/ofi/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <netinet/in.h>

namespace rdmacoro::detail::fabric {

namespace address_format {
inline constexpr std::uint32_t sockaddr_in = 2;
inline constexpr std::uint32_t sockaddr_in6 = 3;
inline constexpr std::uint32_t text = 9;
}  // namespace address_format

/// What a peer's card is measured by.
struct card_measure {
    std::string_view provider;
    std::size_t slot_bytes = 0;         // at least
    bool served = false;                // this side serves gets and puts
    bool same_host = false;             // the provider reaches this host only
    std::uint64_t host = 0;             // this one
    std::uint32_t address_format = 0;   // of this side's own address
    std::size_t own_address_bytes = 0;  // of it
};

/// Whether what a peer calls an address has the form of one like ours: IP addresses and texts whole, others our own's length.
[[nodiscard]] inline bool looks_like_address(std::uint32_t format, std::span<const std::byte> said,
                                             const card_measure& own) noexcept {
    std::uint16_t family = 0;
    if (format != own.address_format || said.size() < sizeof family) return false;
    std::memcpy(&family, said.data(), sizeof family);
    switch (format) {
        case address_format::sockaddr_in: return said.size() == sizeof(sockaddr_in) && family == AF_INET;
        case address_format::sockaddr_in6: return said.size() == sizeof(sockaddr_in6) && family == AF_INET6;
        case address_format::text: {
            const std::string_view whole(reinterpret_cast<const char*>(said.data()), said.size());
            return whole.find('\0') == whole.size() - 1 && whole.find("://") != whole.npos;
        }
        default: return said.size() == own.own_address_bytes;
    }
}

/// What is said to a peer with this card; whether the provider takes its address is another matter. Precondition: it is
/// `good()`, or of another version.
[[nodiscard]] inline verdict judge(const card& said, const card_measure& own) noexcept {
    if (said.version != card::own_version) return verdict::other_version;
    if (said.provider_name() != own.provider || said.slot_bytes < own.slot_bytes ||
        ((said.flags & card::served) != 0) != own.served)
        return verdict::other_provider;
    if (own.same_host && said.host != own.host) return verdict::other_host;
    if (!looks_like_address(said.address_format, std::span(said.address).first(said.address_bytes), own))
        return verdict::bad_address;
    return verdict::welcome;
}

}  // namespace rdmacoro::detail::fabric
