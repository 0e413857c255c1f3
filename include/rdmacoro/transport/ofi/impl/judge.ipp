// Bodies of judge.hpp.
#pragma once

#include <rdmacoro/transport/ofi/judge.hpp>

#include <cstring>

#include <netinet/in.h>

namespace rdmacoro::detail::fabric {

RDMACORO_COLD bool looks_like_address(std::uint32_t format, std::span<const std::byte> theirs,
                                      const connect_limits& own) noexcept {
    std::uint16_t family = 0;
    if (format != own.address_format || theirs.size() < sizeof family) return false;
    std::memcpy(&family, theirs.data(), sizeof family);
    switch (format) {
        case address_format::sockaddr_in: return theirs.size() == sizeof(sockaddr_in) && family == AF_INET;
        case address_format::sockaddr_in6: return theirs.size() == sizeof(sockaddr_in6) && family == AF_INET6;
        case address_format::text: {
            const std::string_view whole(reinterpret_cast<const char*>(theirs.data()), theirs.size());
            return whole.find('\0') == whole.size() - 1 && whole.find("://") != whole.npos;
        }
        default: return theirs.size() == own.own_address_bytes;
    }
}

RDMACORO_COLD verdict judge(const connect_info& theirs, const connect_limits& own) noexcept {
    if (theirs.version != connect_info::own_version) return verdict::other_version;
    if (theirs.provider_name() != own.provider || theirs.slot_bytes < own.slot_bytes ||
        ((theirs.flags & connect_info::served) != 0) != own.served)
        return verdict::other_provider;
    if (own.same_host && theirs.host != own.host) return verdict::other_host;
    if (!looks_like_address(theirs.address_format, std::span(theirs.address).first(theirs.address_bytes),
                            own))
        return verdict::bad_address;
    return verdict::welcome;
}

}  // namespace rdmacoro::detail::fabric
