// Whether two endpoints fit each other, by their connect_info. Needs no libfabric: address formats have its numbers here.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
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

/// Limits for a peer's connect_info.
struct connect_limits {
    std::string_view provider;
    std::size_t slot_bytes = 0;         // at least
    bool served = false;                // this side serves gets and puts
    bool same_host = false;             // the provider reaches this host only
    std::uint64_t host = 0;             // this one
    std::uint32_t address_format = 0;   // of this side's own address
    std::size_t own_address_bytes = 0;  // of it
};

/// Whether a peer's address has the form of this side's own: IP addresses and texts are complete, others have the same length.
[[nodiscard]] bool looks_like_address(std::uint32_t format, std::span<const std::byte> theirs,
                                      const connect_limits& own) noexcept;

/// The verdict about a peer with this connect_info, before the provider judges its address. Precondition: it is `good()`, or of
/// another version.
[[nodiscard]] verdict judge(const connect_info& theirs, const connect_limits& own) noexcept;

}  // namespace rdmacoro::detail::fabric

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/judge.ipp>
#endif
