// The messages of two nodes when they connect, and when one leaves.
#pragma once

#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rdmacoro::detail {

/// Tags of the messages of nodes themselves; from `first_node_tag` on tags are not for the user.
inline constexpr tag_type first_node_tag = 0xffff'ffff'ffff'ff00u;
inline constexpr tag_type hello_tag = first_node_tag + 1;
inline constexpr tag_type answer_tag = first_node_tag + 2;
inline constexpr tag_type last_word_tag = first_node_tag + 3;
/// Said last, by the node that connects, without bytes: it has the connection from now on. Until then it may give the attempt up, which is no
/// loss of a connection.
inline constexpr tag_type taken_tag = first_node_tag + 4;

inline constexpr std::uint32_t node_mark = 0x65646f6e;  // "node"
inline constexpr std::uint32_t node_version = 2;
/// Longest hello or answer, in bytes.
inline constexpr std::size_t longest_hello = 2048;

/// Said first, by the node that connects.
struct node_hello {
    node_id to = 0;             ///< the node that it expects
    generation to_born{};       ///< zero: any
    std::uint64_t attempt = 0;  ///< counts the attempts of the node that says it; from 1 on
    node_card from{};           ///< its own, complete
};

/// The verdict on a hello.
enum class welcome : std::uint8_t {
    accepted,          ///< this connection carries the messages of both from now on
    other_attempt,     ///< both connect to each other, and the other connection is kept
    other_node,        ///< `to` is not this node's id
    other_generation,  ///< `to_born` is not this node's generation
    other_host,        ///< the host is not the one of the card that this node has
    stranger,          ///< this node is not in the book of the other, which admits none
    full,  ///< the other has its limit of connections, and none is idle, or has not received what came over former ones
};
inline constexpr std::uint8_t welcomes = 7;

/// Said in return.
struct node_answer {
    welcome verdict = welcome::accepted;
    std::uint64_t attempts = 0;  ///< how many attempts the node that answers has begun
    node_card from{};            ///< its own, complete
};

/// Why a node will close a connection; its last message.
enum class leave_reason : std::uint8_t {
    idle,      ///< it has too many, and nothing has moved on this one
    stopping,  ///< it stops
};

[[nodiscard]] std::vector<std::byte> encode_hello(const node_hello& from);
/// Every byte is checked. `version_mismatch`: `version` is the one it has.
[[nodiscard]] result<node_hello> decode_hello(std::span<const std::byte> bytes, std::uint32_t& version);
[[nodiscard]] std::vector<std::byte> encode_answer(const node_answer& from);
[[nodiscard]] result<node_answer> decode_answer(std::span<const std::byte> bytes, std::uint32_t& version);

/// "node 9 (generation 0123456789abcdef)".
[[nodiscard]] std::string node_text(node_id id, generation born);
/// The verdict in words.
[[nodiscard]] const char* text_of(welcome verdict) noexcept;

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/node_wire.ipp>
#endif
