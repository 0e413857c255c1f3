#pragma once

// The types of the protocol lists that the conformance suite runs with.

#include <rdmacoro/protocol/protocol.hpp>

namespace rdmacoro::test::lists {

using eager_and_pieces = protocols<eager<>, segmented<>>;
using get = protocols<get_rendezvous<>>;
using put = protocols<put_rendezvous<>>;
using by_size = protocols<eager<>, get_rendezvous<up_to<65536>>, put_rendezvous<>>;
using cooperative = protocols<cooperative_rendezvous<>, segmented<>>;
using reuse_aware = protocols<reuse_aware_eager<>, cooperative_rendezvous<>, get_rendezvous<>>;
using speculative_get = protocols<eager<>, speculative<get_rendezvous<>>>;
using staged = protocols<eager<up_to<1000>>, staged_get<>, get_rendezvous<>>;

// For counting allocations: each policy carries some of the sizes, speculation with pieces behind it and memory used again too.
using staged_short = protocols<eager<>, staged_get<up_to<16384>>, get_rendezvous<>>;
using eager_and_put = protocols<eager<>, put_rendezvous<>>;
using speculative_put =
    protocols<reuse_aware_eager<>, speculative<put_rendezvous<up_to<300000>>>, segmented<>>;
using eager_and_cooperative = protocols<eager<>, cooperative_rendezvous<>, segmented<>>;

// To connect with, and be refused.
using shorter_eager = protocols<eager<up_to<100>>, segmented<>>;
using pieces_only = protocols<segmented<>>;

}  // namespace rdmacoro::test::lists
