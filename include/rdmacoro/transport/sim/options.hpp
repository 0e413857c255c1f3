// The costs, the faults and the capabilities of a simulated network.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro {

class sim_world;

/// The LogGP model (Alexandrov, Ionescu, Schauser, Scheiman, 1995), in virtual time. A message of k bytes that is posted
/// to an idle network at time 0 is handed up at o + (k - 1) G + L + o; the next one leaves g after its last byte.
struct sim_costs {
    duration latency{1000};                   ///< L: through the wire
    duration overhead{200};                   ///< o: of a processor, at each side
    duration gap{50};                         ///< g: of a network card, between messages
    std::uint64_t picoseconds_per_byte = 80;  ///< G: of a network card
    duration registration{1500};              ///< of memory, each time
    duration per_page{100};                   ///< of registered memory, for each 4 KiB of it
};

/// Faults that occur by chance, each so many times in a million.
struct sim_faults {
    std::uint32_t no_room = 0;       ///< a post is answered `retry`, and so is all until `no_room_for` later
    std::uint32_t no_resources = 0;  ///< an `expose`, get or put finds none
    std::uint32_t delayed = 0;       ///< a message, get or put takes up to `delay` longer
    std::uint32_t dropped = 0;       ///< a post breaks its link
    duration no_room_for{5000};      ///< for so long a link without room answers `retry`
    duration delay{100'000};         ///< the longest of those delays
};

/// How a world behaves; see `sim_world`.
struct sim_world_options {
    std::uint64_t seed = 1;  ///< two runs with one seed are the same
    sim_costs costs{};       ///< costs of messages
    sim_faults faults{};     ///< faults of the network
    duration jitter{};  ///< everything takes up to so much longer, by chance: unordered events take any order
    bool keeps_log = false;            ///< `sim_world::log` lists the events, for people
    bool violations_are_fatal = true;  ///< otherwise `sim_world::violations` lists them
};

/// How a simulated domain, one node of the network, behaves.
struct sim_options {
    /// No limit.
    static constexpr std::size_t unlimited = static_cast<std::size_t>(-1);
    /// The default capabilities of links.
    static constexpr capabilities usual{.inline_bytes = 48,
                                        .max_message = 16384,
                                        .eager_bytes = 4096,
                                        .segment_bytes = 16384,
                                        .get_alignment = 1,
                                        .one_sided = true,
                                        .one_sided_offloaded = true,
                                        .needs_registration = false,
                                        .atomics = false,
                                        .put_before_send = false,
                                        .revokes_at_once = true,
                                        .rendezvous_bytes = 16384};

    sim_world* world = nullptr;               ///< nullptr: the scheduler's own one
    capabilities offered = usual;             ///< the capabilities of the node's links
    std::size_t staged_bytes = 512;           ///< longer payloads are `posted`: sent from the caller's memory
    std::size_t announces_above = unlimited;  ///< longer payloads are announced, and come in pieces
    std::size_t piece_bytes = 1000;           ///< of such a piece
    std::size_t room = unlimited;             ///< messages of one direction that may be under way
    bool lends = true;                        ///< `keep` gives memory
    std::size_t max_regions = 65536;          ///< registered at once; at most 65,536
    /// With `offered.needs_registration`: through a cache. The number of registrations then depends on addresses, and so does time.
    bool caches_registrations = false;
    /// Without `offered.revokes_at_once`: exposed memory that stays registered after the end of its region.
    std::size_t lingering_regions = 64;
};

/// Counts of one node or of a whole world.
struct sim_counts {
    std::uint64_t messages = 0;         ///< handed to the network
    std::uint64_t message_bytes = 0;    ///< of payload
    std::uint64_t gets = 0;             ///< gets begun
    std::uint64_t puts = 0;             ///< puts begun
    std::uint64_t one_sided_bytes = 0;  ///< bytes of both
    std::uint64_t registrations = 0;    ///< registrations made
    std::uint64_t staged = 0;           ///< messages with a payload copied by the post
    std::uint64_t staged_bytes = 0;     ///< payload copied to a staging buffer
    std::uint64_t in_place = 0;         ///< messages posted in place
    std::uint64_t retries = 0;          ///< posts answered `retry`
    std::uint64_t drops = 0;            ///< links broken on request or by chance
};

}  // namespace rdmacoro
