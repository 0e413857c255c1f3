// node_card: how nodes are named, and where they can be reached.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rdmacoro {

/// The number of a node among those that know each other. 0 is none.
using node_id = std::uint32_t;

/// One life of a node: random, new whenever a node is made. Zero: not known, or any.
enum class generation : std::uint64_t {};

/// A generation that no other node has, but by a chance of 2 to the -64th. Throws where the system has no random numbers.
[[nodiscard]] generation new_generation();

/// The generation as 16 digits, for people.
[[nodiscard]] std::string to_string(generation which);

/// The host and the network that a process runs in: two processes reach each other by shared memory only if both agree. All zero: not
/// known.
struct host_identity {
    std::array<std::uint8_t, 16> boot{};  ///< the kernel's boot id: another one after each start of the host
    std::uint64_t network = 0;            ///< the network namespace

    /// Whether they say the same.
    [[nodiscard]] bool operator==(const host_identity&) const = default;
    /// Whether anything is known.
    [[nodiscard]] bool known() const noexcept { return *this != host_identity{}; }
    /// For people.
    [[nodiscard]] std::string text() const;
    /// Of this process. All zero where the system does not say it.
    [[nodiscard]] static host_identity own();
};

/// How a node is reached. A card given by the user may leave out `born` and `host`; what a node says about itself may not.
struct node_card {
    /// Of the encoded card, in bytes.
    static constexpr std::size_t most_bytes = 1024;

    node_id id = 0;                   ///< never 0 in a valid card
    generation born{};                ///< zero: any
    host_identity host{};             ///< all zero: not known
    std::vector<std::string> urls{};  ///< it listens at, in no order

    /// Whether they say the same.
    [[nodiscard]] bool operator==(const node_card&) const = default;
    /// Why it cannot be a card: no id, too long, or a URL that is no text. nullptr: it can.
    [[nodiscard]] const char* fault() const noexcept;
};

/// The card as bytes, with a mark and a version. Throws `errc::invalid_argument` where `fault` says why.
[[nodiscard]] std::vector<std::byte> encode_card(const node_card& from);

/// The card that a peer sent, or `std::errc::bad_message` where a byte is not what `encode_card` writes. Throws `std::bad_alloc`.
[[nodiscard]] result<node_card> decode_card(std::span<const std::byte> bytes);

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/node_card.ipp>
#endif
