// Wire format of libfabric links: the connect_info of a connection, and the word before each message.
//
//   frame    kind (4 bits), sequence (12), returned credits (16); the receiver's link (64); then, by kind:
//            message: header and payload; get, put: `service_request`; status: `one_sided_status`; tagged address: an
//            address, as the provider has it; fetched: the message's number (32); withdraw: the operation's (32); the others:
//            nothing
//   tagged   see `tagged_head`: messages that the provider matches go by another endpoint, without a frame
//   connect_info     see `connect_info`
//
// All links of a domain share one endpoint, so each frame names the link it is for: an index, and 48 random bits that the
// receiver chose and sent to that peer alone. Numbers are little-endian.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace rdmacoro::detail::fabric {

enum class frame_kind : std::uint8_t {
    message = 1,
    credit,          ///< returns credits only
    get,             ///< asks the receiver to write its region's data to the sender's memory
    put,             ///< asks the receiver to read the sender's memory into its region
    status,          ///< how a get or put ended
    hello,           ///< the first frame
    bye,             ///< the last frame of a link that is closed
    tagged_address,  ///< the address for messages that the provider matches
    fetched,         ///< the receiver has fetched such a message, a long one
    withdraw,        ///< a get or put that was asked for is given up: the receiver answers it soon
};

inline constexpr std::size_t frame_word_bytes = 12;
/// Bytes before each payload.
inline constexpr std::size_t frame_bytes = frame_word_bytes + message_header_bytes;

/// Longest address of an endpoint.
inline constexpr std::size_t most_address_bytes = 256;

/// A link's number at its receiver: its place in the low 16 bits, and above them random bits that only the peer knows.
[[nodiscard]] constexpr std::uint32_t place_of(std::uint64_t link) noexcept {
    return static_cast<std::uint32_t>(link & 0xffff);
}

/// The word before each message.
struct frame {
    static constexpr std::uint32_t sequence_mask = 0xfff;

    frame_kind kind = frame_kind::message;
    std::uint16_t credits = 0;
    std::uint32_t sequence = 0;  // the number of the frame among all of its link's, its lowest 12 bits
    std::uint64_t link = 0;

    void store(std::byte* to) const noexcept {
        store_number(to, static_cast<std::uint32_t>(static_cast<std::uint32_t>(kind) |
                                                    ((sequence & sequence_mask) << 4) |
                                                    (std::uint32_t{credits} << 16)));
        store_number(to + 4, link);
    }
    /// False: malformed.
    [[nodiscard]] bool load(const std::byte* from, std::size_t bytes) noexcept;
};

/// Comes after the word of a get or put that the receiver serves.
struct service_request {
    static constexpr std::size_t wire_bytes = 48;

    std::uint64_t key = 0;      // of the receiver's region
    std::uint64_t address = 0;  // in it
    std::uint64_t length = 0;
    std::uint64_t own_key = 0;      // of the sender's memory
    std::uint64_t own_address = 0;  // as the provider counts
    std::uint32_t operation = 0;

    void store(std::byte* to) const noexcept {
        store_number(to, key);
        store_number(to + 8, address);
        store_number(to + 16, length);
        store_number(to + 24, own_key);
        store_number(to + 32, own_address);
        store_number(to + 40, operation);
        store_number(to + 44, std::uint32_t{0});
    }
    [[nodiscard]] static service_request load(const std::byte* from) noexcept;
};
/// Gets and puts of one link that its peer may have been asked for and has not answered.
inline constexpr std::uint32_t most_served = 64;

inline bool frame::load(const std::byte* from, std::size_t bytes) noexcept {
    if (bytes < frame_word_bytes) return false;
    const auto word = load_number<std::uint32_t>(from);
    kind = static_cast<frame_kind>(word & 0xf);
    sequence = (word >> 4) & sequence_mask;
    credits = static_cast<std::uint16_t>(word >> 16);
    link = load_number<std::uint64_t>(from + 4);
    switch (kind) {
        case frame_kind::message: return bytes >= frame_bytes;
        case frame_kind::credit:
        case frame_kind::hello:
        case frame_kind::bye: return bytes == frame_word_bytes;
        case frame_kind::get:
        case frame_kind::put: return bytes == frame_word_bytes + service_request::wire_bytes;
        case frame_kind::status: return bytes == frame_word_bytes + one_sided_status::wire_bytes;
        case frame_kind::tagged_address:
            return bytes > frame_word_bytes && bytes <= frame_word_bytes + most_address_bytes;
        case frame_kind::fetched:
        case frame_kind::withdraw: return bytes == frame_word_bytes + sizeof(std::uint32_t);
    }
    return false;
}

/// Comes before the payload of a message that the provider matches. Any sender that knows a link's tagged endpoint can send there,
/// so the receiver's link is named here as in a frame.
struct tagged_head {
    static constexpr std::size_t wire_bytes = 16;       // of a short message: its payload follows
    static constexpr std::size_t long_wire_bytes = 40;  // of a long one, which is this alone

    std::uint64_t link = 0;
    std::uint32_t note = 0;
    std::uint32_t number = 0;   // of a long message at its sender, and never 0; 0: it is short
    std::uint64_t length = 0;   // of the payload
    std::uint64_t address = 0;  // of a long one, for gets
    std::uint64_t key = 0;

    [[nodiscard]] std::size_t bytes() const noexcept { return number != 0 ? long_wire_bytes : wire_bytes; }
    void store(std::byte* to) const noexcept {
        store_number(to, link);
        store_number(to + 8, note);
        store_number(to + 12, number);
        if (number == 0) return;
        store_number(to + 16, length);
        store_number(to + 24, address);
        store_number(to + 32, key);
    }
    /// False: malformed.
    [[nodiscard]] bool load(const std::byte* from, std::size_t bytes) noexcept {
        if (bytes < wire_bytes) return false;
        link = load_number<std::uint64_t>(from);
        note = load_number<std::uint32_t>(from + 8);
        number = load_number<std::uint32_t>(from + 12);
        length = bytes - wire_bytes;
        address = key = 0;
        if (number == 0) return true;
        if (bytes != long_wire_bytes) return false;
        length = load_number<std::uint64_t>(from + 16);
        address = load_number<std::uint64_t>(from + 24);
        key = load_number<std::uint64_t>(from + 32);
        return true;
    }
};

/// Why a side refuses the other's link; travels after the connect_info.
enum class verdict : std::uint8_t {
    welcome = 1,
    other_version,
    other_provider,  ///< the two speak different networks, or serve gets and puts differently
    other_host,      ///< the provider reaches this host only
    bad_address,     ///< not an address of the provider
    no_room,
    no_receives,  ///< the provider takes too few receives for one more link
    reused_address,  ///< the address was another endpoint's, which the provider still remembers, or to which links are ending
};

/// One side's endpoint and link, sent over the socket that the link opens with.
struct connect_info {
    static constexpr std::uint32_t right_magic = 0x46434452;  // "RDCF"
    static constexpr std::uint32_t own_version = 2;
    static constexpr std::size_t most_address = most_address_bytes;
    static constexpr std::size_t most_provider = 32;
    static constexpr std::size_t wire_bytes = 48 + most_provider + most_address;
    static constexpr std::uint32_t least_slot = 4096;
    static constexpr std::uint32_t most_slot = 1u << 20;
    static constexpr std::uint32_t least_credits = 8;
    static constexpr std::uint32_t most_credits = 1024;
    static constexpr std::uint32_t served = 1;  // flag: this side serves gets and puts

    std::uint32_t magic = right_magic;
    std::uint32_t version = own_version;
    std::uint32_t slot_bytes = 0;
    std::uint32_t credits = 0;
    std::uint32_t flags = 0;
    std::uint32_t address_format = 0;  // as libfabric numbers them
    std::uint64_t link = 0;            // the other side's name for this side's link
    std::uint64_t host = 0;
    std::uint32_t address_bytes = 0;
    std::uint32_t nonce = 0;  // the endpoint's
    std::array<char, most_provider> provider{};
    std::array<std::byte, most_address> address{};

    void store(std::byte* to) const noexcept;
    void load(const std::byte* from) noexcept;

    void name_provider(std::string_view name) noexcept;
    [[nodiscard]] std::string_view provider_name() const noexcept;
    /// Whether the numbers are in range.
    [[nodiscard]] bool good() const noexcept;
};

}  // namespace rdmacoro::detail::fabric

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/frame.ipp>
#endif
