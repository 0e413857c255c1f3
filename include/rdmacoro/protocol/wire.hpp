// The header of every message, and the layouts of control messages, which belong to no policy.
//
// Belongs here: wire formats, matching, flow control, and one file for each protocol policy.
// Does not belong here: how bytes move (transport/), the operations of users (messaging/).
#pragma once

#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace rdmacoro {

/// The label of a message, by which receives select it.
using tag_type = std::uint64_t;

namespace detail {

/// Changes with every incompatible change of the wire format.
inline constexpr std::uint32_t wire_version = 3;

/// Message kinds below this belong to no policy; a protocol list numbers its policies' kinds from here.
inline constexpr std::uint8_t first_policy_kind = 8;

/// The kinds that belong to no policy. Their tag is 0; where the link matches messages, how many were posted before.
enum class control_kind : std::uint8_t {
    hello = 1,    ///< the first message of each side; payload: `wire_hello` and the protocol list as text
    credit = 2,   ///< gives credits back, in the header; no payload
    goodbye = 3,  ///< the sender will send no more messages
    goodbye_seen = 4,  ///< everything up to the peer's goodbye has arrived
    starved = 5,       ///< sends wait for credit: it is given back soon, however little; no payload
    ahead = 6,         ///< about messages that are sent ahead of their turn; see `ahead_word`
    recall =
        7  ///< granted credit that is not used is wanted back; with flag 1: is given back. The tag is how much
};

/// The header. Little-endian: kind, flags, credits (16 bits), tag (64 bits).
struct wire_header {
    std::uint8_t kind = 0;
    std::uint8_t flags = 0;
    std::uint16_t credits =
        0;             ///< of the receiver's memory that the sender of this gives back, in `credit_bytes`
    tag_type tag = 0;  ///< the message's tag; in a policy's control messages its own number

    [[nodiscard]] message_header store() const noexcept {
        message_header raw;
        store_number(raw.data(),
                     std::uint32_t{kind} | std::uint32_t{flags} << 8 | std::uint32_t{credits} << 16);
        store_number(raw.data() + 4, tag);
        return raw;
    }
    /// Reads each byte once.
    [[nodiscard]] static wire_header load(const message_header& raw) noexcept {
        const auto word = load_number<std::uint32_t>(raw.data());
        return {static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8),
                static_cast<std::uint16_t>(word >> 16), load_number<tag_type>(raw.data() + 4)};
    }
};

/// The first message of each side.
struct wire_hello {
    static constexpr std::uint64_t magic_value = 0x6f726f63616d6472;  // "rdmacoro", little-endian
    static constexpr std::size_t wire_bytes = 32;
    static constexpr std::size_t most_text = most_copied - wire_bytes;

    std::uint64_t magic = magic_value;
    std::uint32_t version = wire_version;
    std::uint32_t budget = 0;       ///< of memory for messages without a receive, in `credit_bytes`
    std::uint64_t fingerprint = 0;  ///< of the protocol list
    std::uint32_t withheld = 0;     ///< of the budget: granted later, as credits that are given back
    std::uint32_t reserved = 0;

    [[nodiscard]] std::array<std::byte, wire_bytes> store() const noexcept {
        std::array<std::byte, wire_bytes> raw;
        store_number(raw.data(), magic);
        store_number(raw.data() + 8, version);
        store_number(raw.data() + 12, budget);
        store_number(raw.data() + 16, fingerprint);
        store_number(raw.data() + 24, withheld);
        store_number(raw.data() + 28, reserved);
        return raw;
    }
    /// Nothing when it is too short or does not begin with the magic number.
    [[nodiscard]] static std::optional<wire_hello> load(std::span<const std::byte> raw) noexcept {
        if (raw.size() < wire_bytes || raw.size() > most_copied) return {};
        wire_hello h;
        h.magic = load_number<std::uint64_t>(raw.data());
        h.version = load_number<std::uint32_t>(raw.data() + 8);
        h.budget = load_number<std::uint32_t>(raw.data() + 12);
        h.fingerprint = load_number<std::uint64_t>(raw.data() + 16);
        h.withheld = load_number<std::uint32_t>(raw.data() + 24);
        if (h.magic != magic_value) return {};
        return h;
    }
};

/// FNV-1a, for fingerprints that compilers can compute.
[[nodiscard]] constexpr std::uint64_t fingerprint_of(std::string_view text,
                                                     std::uint64_t seed = 0xcbf29ce484222325) noexcept {
    for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return seed;
}

}  // namespace detail
}  // namespace rdmacoro
