#pragma once

// For tests of `speculative`: its messages as bytes, and steps of a network that is held.

#include <rdmacoro/protocol/speculative.hpp>

#include "support/rendezvous.hpp"

#include <algorithm>

namespace rdmacoro::test::speculation {

using list = protocols<speculative<>>;
using mixed = protocols<eager<up_to<100>>, speculative<>>;
using peer_type = basic_scripted_peer<list>;
using mixed_peer = basic_scripted_peer<mixed>;
using pair_type = endpoint_pair<list>;
using mixed_pair = endpoint_pair<mixed>;

/// The kinds behind those of the fallback, where the policy is the first of its list.
enum class sp : std::uint8_t { announce = 15, claim, finish, withdraw, withdrawn, revoke };

template <class Peer>
void say(Peer& peer, sp kind, tag_type tag, std::span<const std::byte> payload = {}, std::uint8_t flags = 0) {
    peer.send_raw(static_cast<std::uint8_t>(kind), tag, payload, 0, flags);
}
inline bool is(const heard_message& m, sp kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }

inline std::vector<std::byte> announce_body(std::uint32_t number, std::uint32_t ahead, std::uint64_t seen,
                                            std::initializer_list<remote_region> pieces) {
    std::vector<std::byte> raw(16);
    rdmacoro::detail::store_number(raw.data(), number);
    rdmacoro::detail::store_number(raw.data() + 4, ahead);
    rdmacoro::detail::store_number(raw.data() + 8, seen);
    append(raw, pieces);
    return raw;
}
inline std::vector<std::byte> length(std::uint64_t bytes) {
    std::vector<std::byte> raw(8);
    rdmacoro::detail::store_number(raw.data(), bytes);
    return raw;
}

inline bool all_are(std::span<const std::byte> memory, int value) {
    return std::all_of(memory.begin(), memory.end(),
                       [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

/// One message, or one put or get of the other end, goes through a lane that is held.
template <class Pair>
void step_to_a(Pair& pair) {
    pair.from_b().held = false;
    pair.a.connection().poll(1);
    pair.from_b().held = true;
}
template <class Pair>
void step_to_b(Pair& pair) {
    pair.from_a().held = false;
    pair.b.connection().poll(1);
    pair.from_a().held = true;
}

template <class Pair>
inline std::uint64_t ended_of(Pair& pair) {
    const metrics& m = pair.b.counts();
    return m.announcements_met + m.announcements_crossed + m.announcements_mispredicted +
           m.announcements_withdrawn;
}

}  // namespace rdmacoro::test::speculation
