#pragma once

// Ways to open a domain of the transport within one process that matches by itself.

#include <rdmacoro/messaging/messaging.hpp>

#include "support/matching_loopback.hpp"
#include "support/over/loopback_variants.hpp"

#include <memory>

namespace rdmacoro::detail {
/// So that the suite, which names no list, runs with the transport's own matching on it.
template <>
struct default_list<test::matching_loopback> {
    using type = protocols<provider_matched>;
};
}  // namespace rdmacoro::detail

namespace rdmacoro::test {

struct matched_in_memory : in_memory {
    using transport_type = matching_loopback;
    static std::unique_ptr<matching_loopback::domain> open(scheduler& on) {
        tagged_wire::of_new_ones() = nullptr;
        return in_memory::open(on);
    }
};

/// Matched by a link that has room for few, ends things late and takes one piece of memory.
struct matched_with_little_room : matched_in_memory {
    static std::unique_ptr<matching_loopback::domain> open(scheduler& on) {
        tagged_wire::of_new_ones() = [](tagged_wire& wire) {
            for (tagged_lane& lane : wire.lanes) {
                lane.room = 7;
                lane.posts = 2;
                lane.piece = 20'000;
                lane.defers = lane.answers_late = lane.withdraws_late = lane.refuses_claims = true;
            }
            wire.traits.buffered_bytes = 1500;
            wire.traits.pieces = 1;
        };
        return in_memory::open(on);
    }
};

}  // namespace rdmacoro::test
