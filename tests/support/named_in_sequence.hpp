#pragma once

// For tests of the four tables whose slots a peer names by number: it names one that it used before, or the next.

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/scripted_peer.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::test {

namespace detail_of_named_in_sequence {
template <class Peer>
task<> name_one(scheduler& on, std::uint32_t used, std::uint32_t named, void (*name)(Peer&, std::uint32_t)) {
    Peer peer(on);
    co_await peer.open(1u << 20);
    for (std::uint32_t id = 0; id < used; ++id) name(peer, id);
    co_await sleep_for(std::chrono::milliseconds(10));  // none is left in the network for its receive
    REQUIRE(peer.self().is_open());
    name(peer, named);
    const std::size_t before = allocations();
    peer.self().connection().poll(1);
    const std::size_t made = allocations() - before;
    CHECK_FALSE(peer.self().is_open());
    CHECK(peer.self().connection().reason() == errc::protocol_violation);
    if (counts_allocations) CHECK(made == 0);
}
}  // namespace detail_of_named_in_sequence

/// `name` has the peer send a message that takes slot `id`, one of `most`. In sequence all are taken; one that is not ends the
/// link, and takes no memory.
template <class Peer>
void check_named_in_sequence(std::uint32_t most, void (*name)(Peer&, std::uint32_t id)) {
    for (const std::uint32_t used : {0u, 1u, 5u, 20u}) {
        for (const std::uint32_t named : {used + 1, used + 9, most - 1}) {
            CAPTURE(used, named);
            virtual_time world;
            world.run(detail_of_named_in_sequence::name_one<Peer>(world.on, used, named, name));
        }
    }
}

}  // namespace rdmacoro::test
