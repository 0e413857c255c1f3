#pragma once

// For tests of staged_get: its messages as bytes, and the blocks of a scripted peer.

#include <rdmacoro/protocol/staged_get.hpp>

#include "support/rendezvous.hpp"

#include <algorithm>

namespace rdmacoro::test::staged {

using list = protocols<staged_get<>>;
using peer_type = basic_scripted_peer<list>;
using pair_type = endpoint_pair<list>;
using send_type = started<send_operation<endpoint<loopback, list>::connection_type>>;
using receive_type = started<receive_operation<endpoint<loopback, list>::connection_type>>;

constexpr std::uint32_t blocks = detail::most_staged;

/// The policy's kinds when it is the first of its list.
constexpr std::uint8_t request = 8;
constexpr std::uint8_t received_kind = 9;
constexpr std::uint8_t leaving = 10;

inline std::vector<std::byte> body(std::uint32_t block, std::uint32_t bytes, const remote_region& where) {
    std::vector<std::byte> raw(rdmacoro::detail::staged_request_body::wire_bytes);
    static_cast<void>(rdmacoro::detail::staged_request_body{block, bytes, where.address, where.key}.store(
        std::span<std::byte, rdmacoro::detail::staged_request_body::wire_bytes>(raw)));
    return raw;
}
/// The block that a request names, as far as it may be got.
inline remote_region block_of(const heard_message& m) {
    return {
        rdmacoro::detail::load_number<std::uint64_t>(m.payload.data() + 8),
        rdmacoro::detail::staged_bytes(rdmacoro::detail::load_number<std::uint32_t>(m.payload.data() + 4)),
        rdmacoro::detail::load_number<std::uint64_t>(m.payload.data() + 16)};
}

/// The memory that a peer sends from: aligned, and open.
struct peer_block {
    explicit peer_block(peer_type& peer, std::size_t bytes = 16_KiB)
        : pool(bytes, 1, 1), memory(pool.take(), bytes) {
        const auto data = pattern(bytes);
        std::copy(data.begin(), data.end(), memory.begin());
        open = peer.link().expose(memory, access_rights::remote_read);
    }
    [[nodiscard]] bool holds(std::span<const std::byte> other) const {
        return std::equal(other.begin(), other.end(), memory.begin());
    }
    void ask(peer_type& peer, std::uint32_t block, std::uint32_t bytes, tag_type tag) const {
        peer.send_raw(request, tag, body(block, bytes, open.remote()));
    }

    slab_pool pool;
    std::span<std::byte> memory;
    region open;
};

/// Whether neither end keeps anything of a message, but for the blocks that stay, and for those that a lost peer did not finish.
inline bool at_rest(pair_type& pair) {
    for (auto* end : {&pair.a, &pair.b}) {
        drop_lost(end->connection());
        auto& box = end->connection().mailbox();
        if (box.store().live() != 0 || box.matching().unexpected() != 0) return false;
    }
    return true;
}

}  // namespace rdmacoro::test::staged
