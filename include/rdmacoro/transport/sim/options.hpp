// What a simulated network costs, what goes wrong in it, and what its domains can do.
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

/// What goes wrong by itself, each so many times in a million.
struct sim_faults {
    std::uint32_t no_room = 0;       ///< a post is answered `retry`, and so is all until `no_room_for` later
    std::uint32_t no_resources = 0;  ///< an `expose`, get or put finds none
    std::uint32_t delayed = 0;       ///< a message, get or put takes up to `delay` longer
    std::uint32_t dropped = 0;       ///< a post breaks its link
    duration no_room_for{5000};
    duration delay{100'000};
};

/// How a world behaves; see `sim_world`.
struct sim_world_options {
    std::uint64_t seed = 1;
    sim_costs costs{};
    sim_faults faults{};
    duration jitter{};  ///< everything takes up to so much longer, by chance: what has no order takes any
    bool keeps_log = false;            ///< `sim_world::log` says what happened, for people
    bool violations_are_fatal = true;  ///< otherwise `sim_world::violations` tells of them
};

/// How a simulated domain, one node of the network, behaves.
struct sim_options {
    static constexpr std::size_t unlimited = static_cast<std::size_t>(-1);
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

    sim_world* world = nullptr;  ///< nullptr: the scheduler's own one
    capabilities offered = usual;
    std::size_t staged_bytes = 512;           ///< longer payloads are `posted`: sent from the caller's memory
    std::size_t announces_above = unlimited;  ///< longer payloads are announced, and come in pieces
    std::size_t piece_bytes = 1000;           ///< of such a piece
    std::size_t room = unlimited;             ///< messages of one direction that may be under way
    bool lends = true;                        ///< `keep` gives memory
    std::size_t max_regions = 65536;          ///< registered at once; at most 65,536
    /// With `offered.needs_registration`: through a cache. What is registered then depends on addresses, and so does time.
    bool caches_registrations = false;
    /// Without `offered.revokes_at_once`: exposed memory that stays registered after the end of its region.
    std::size_t lingering_regions = 64;
};

/// What has been done, in one node or in a whole world.
struct sim_counts {
    std::uint64_t messages = 0;       ///< handed to the network
    std::uint64_t message_bytes = 0;  ///< of payload
    std::uint64_t gets = 0;
    std::uint64_t puts = 0;
    std::uint64_t one_sided_bytes = 0;
    std::uint64_t registrations = 0;
    std::uint64_t staged = 0;  ///< messages whose payload was copied by their post
    std::uint64_t staged_bytes = 0;
    std::uint64_t in_place = 0;  ///< messages posted in place
    std::uint64_t retries = 0;   ///< posts answered `retry`
    std::uint64_t drops = 0;     ///< links broken on request or by chance
};

}  // namespace rdmacoro
