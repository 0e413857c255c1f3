// Bodies of node_wire.hpp.
#pragma once

#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/node_wire.hpp>

namespace rdmacoro::detail {

/// In front of both, in every version.
struct node_preamble {
    std::uint32_t mark = node_mark;
    std::uint32_t version = node_version;
};
struct hello_on_wire {
    node_preamble before{};
    node_hello hello{};
};
struct answer_on_wire {
    node_preamble before{};
    std::uint8_t verdict = 0;
    std::uint64_t attempts = 0;
    node_card from{};
};

/// Zero: what follows is of this version.
RDMACORO_COLD std::error_code check_preamble(std::span<const std::byte> bytes, std::uint32_t& version) {
    node_preamble before;
    decoder from(bytes, {});
    if (bytes.size() > longest_hello || !from.read(before) || before.mark != node_mark)
        return std::make_error_code(std::errc::bad_message);
    version = before.version;
    return before.version == node_version ? std::error_code() : make_error_code(errc::version_mismatch);
}

/// A node's own card is complete.
RDMACORO_COLD bool is_complete(const node_card& card) {
    return card.fault() == nullptr && card.born != generation{};
}

inline constexpr decode_limits hello_limits{.bytes = 64 * longest_hello, .depth = 6};

RDMACORO_COLD std::vector<std::byte> encode_hello(const node_hello& from) {
    return encode(hello_on_wire{{}, from});
}
RDMACORO_COLD result<node_hello> decode_hello(std::span<const std::byte> bytes, std::uint32_t& version) {
    if (const std::error_code why = check_preamble(bytes, version)) return why;
    auto read = decode<hello_on_wire>(bytes, hello_limits);
    if (!read || !is_complete(read->hello.from) || read->hello.to == 0 || read->hello.attempt == 0)
        return std::make_error_code(std::errc::bad_message);
    return std::move(read->hello);
}

RDMACORO_COLD std::vector<std::byte> encode_answer(const node_answer& from) {
    return encode(answer_on_wire{{}, static_cast<std::uint8_t>(from.verdict), from.attempts, from.from});
}
RDMACORO_COLD result<node_answer> decode_answer(std::span<const std::byte> bytes, std::uint32_t& version) {
    if (const std::error_code why = check_preamble(bytes, version)) return why;
    auto read = decode<answer_on_wire>(bytes, hello_limits);
    if (!read || !is_complete(read->from) || read->verdict >= welcomes)
        return std::make_error_code(std::errc::bad_message);
    return node_answer{static_cast<welcome>(read->verdict), read->attempts, std::move(read->from)};
}

RDMACORO_COLD std::string node_text(node_id id, generation born) {
    std::string text = "node " + std::to_string(id);
    if (born != generation{}) text += " (generation " + to_string(born) + ")";
    return text;
}

RDMACORO_COLD const char* text_of(welcome verdict) noexcept {
    switch (verdict) {
        case welcome::accepted: return "accepted";
        case welcome::other_attempt: return "it connects by itself at the same time";
        case welcome::other_node: return "it has another id";
        case welcome::other_generation: return "it has another generation";
        case welcome::other_host: return "it knows another host for this node";
        case welcome::stranger: return "this node is not in its address book";
        case welcome::full:
            return "it has as many connections as it may, and none is idle, or does not receive the messages "
                   "of former ones";
    }
    return "unknown";
}

}  // namespace rdmacoro::detail
