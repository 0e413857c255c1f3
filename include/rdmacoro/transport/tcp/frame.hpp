// The byte stream of a tcp link: a greeting, then frames.
//
//   greeting  "rdmacoro-tcp" (12 bytes), version (4), longest message accepted (4), reserved (4), nonce (8)
//   frame     word (4): kind in the top 4 bits, bytes of data in the lower 28; the kind's fixed head; the data
//
// All numbers are little-endian. Kinds and their heads: message (12 bytes that the layer above owns) and those of
// transport/detail/one_sided_wire.hpp.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

inline constexpr std::uint32_t tcp_version = 1;
inline constexpr std::size_t tcp_most_message = std::size_t{1} << 20;  // data of one message frame
inline constexpr std::size_t tcp_most_part = std::size_t{1} << 20;  // data of one get_data or put_data frame

inline constexpr capabilities tcp_capabilities{
    .max_message = tcp_most_message,
    .eager_bytes = 64 * 1024,
    .segment_bytes = tcp_most_message,
    .one_sided = true,
    .revokes_at_once = true,
    .byte_stream = true,
    .rendezvous_bytes = never_by_rendezvous,  // the stream goes straight to its place
};

enum class tcp_frame : std::uint32_t {
    message = 1,
    get_request = 2,
    get_data = 3,
    put_data = 4,
    one_sided_status = 5
};

inline constexpr std::size_t tcp_word_bytes = 4;
inline constexpr std::size_t tcp_message_head = tcp_word_bytes + message_header_bytes;
inline constexpr std::size_t tcp_longest_head =
    tcp_word_bytes + std::max(get_request::wire_bytes, put_data::wire_bytes);

/// A frame word, taken apart.
struct tcp_word {
    tcp_frame kind;
    std::uint32_t bytes;

    [[nodiscard]] static tcp_word load(const std::byte* from) noexcept;
    void store(std::byte* to) const noexcept;

    /// Bytes of word and fixed head together; 0 for a frame that a peer must not send.
    [[nodiscard]] std::size_t head_bytes() const noexcept;
};

/// The first bytes of each side.
struct tcp_greeting {
    static constexpr std::size_t wire_bytes = 32;
    static constexpr std::size_t magic_bytes = 12;
    static constexpr std::size_t deciding_bytes = 16;  // magic and version: enough to refuse a stranger
    using bytes = std::array<std::byte, wire_bytes>;

    std::uint32_t version = tcp_version;
    std::uint32_t most_message = tcp_most_message;
    std::uint64_t nonce = 0;

    [[nodiscard]] bytes store() const noexcept;
    [[nodiscard]] static tcp_greeting load(const bytes& from) noexcept;
    /// Whether the first `have` bytes could be those of a greeting.
    [[nodiscard]] static bool could_be(const bytes& from, std::size_t have) noexcept;

private:
    static constexpr char magic[magic_bytes + 1] = "rdmacoro-tcp";
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/frame.ipp>
#endif
