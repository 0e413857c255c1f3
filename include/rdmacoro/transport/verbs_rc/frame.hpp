// Wire format of verbs links: the greeting of a connection, and the word before each message.
//
//   frame     kind (8 bits), 0 (8), returned credits (16); then, for a message, its header and payload
//   greeting  see `greeting`
//
// Numbers are little-endian.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacoro::detail::verbs {

enum class frame_kind : std::uint8_t {
    message = 1,
    credit,   ///< returns credits only
    flush,    ///< asks whether the data of earlier puts has been placed
    flushed,  ///< answers that it has
};

inline constexpr std::size_t frame_word_bytes = 4;
/// Bytes before each payload.
inline constexpr std::size_t frame_bytes = frame_word_bytes + message_header_bytes;

/// The word before each message.
struct frame {
    frame_kind kind = frame_kind::message;
    std::uint16_t credits = 0;

    void store(std::byte* to) const noexcept {
        store_number(to, static_cast<std::uint32_t>(static_cast<std::uint32_t>(kind) |
                                                    (std::uint32_t{credits} << 16)));
    }
    /// False: malformed.
    [[nodiscard]] bool load(const std::byte* from, std::size_t bytes) noexcept {
        if (bytes < frame_word_bytes) return false;
        const auto word = load_number<std::uint32_t>(from);
        kind = static_cast<frame_kind>(word & 0xff);
        credits = static_cast<std::uint16_t>(word >> 16);
        if ((word & 0xff00) != 0) return false;
        if (kind == frame_kind::message) return bytes >= frame_bytes;
        return kind >= frame_kind::credit && kind <= frame_kind::flushed && bytes == frame_word_bytes;
    }
};

/// Travels with the connection request and its answer. Fits into the private data of rdma_cm over InfiniBand, 56 bytes.
struct greeting {
    static constexpr std::uint32_t right_magic = 0x56434452;  // "RDCV"
    static constexpr std::uint32_t own_version = 1;
    static constexpr std::size_t wire_bytes = 24;
    static constexpr std::uint32_t least_slot = 4096;
    static constexpr std::uint32_t most_slot = 1u << 20;
    static constexpr std::uint32_t least_credits = 8;
    static constexpr std::uint32_t most_credits = 1024;
    static constexpr std::uint32_t no_room = 1;    // for one more link
    static constexpr std::uint32_t no_memory = 2;  // can be registered for it
    using bytes = std::array<std::byte, wire_bytes>;

    std::uint32_t magic = right_magic;
    std::uint32_t version = own_version;
    std::uint32_t slot_bytes = 0;
    std::uint32_t credits = 0;
    std::uint32_t refusal = 0;  // one of the reasons below, when it comes with a rejection
    std::uint32_t reserved = 0;

    [[nodiscard]] bytes store() const noexcept;
    /// `errc::protocol_violation` or `errc::version_mismatch` when the link can't be.
    [[nodiscard]] errc load(const std::byte* from, std::size_t have) noexcept;
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/frame.ipp>
#endif
