#include <rdmacoro/protocol/protocols.hpp>

#include "support/catch.hpp"
#include "support/loopback.hpp"

#include <rdmacoro/transport/shm.hpp>

#include <string>

using namespace rdmacoro;

namespace {

constexpr capabilities small_link{.inline_bytes = 48,
                                  .max_message = 10000,
                                  .eager_bytes = 2000,
                                  .segment_bytes = 8000,
                                  .get_alignment = 1,
                                  .one_sided = false,
                                  .one_sided_offloaded = false,
                                  .needs_registration = false,
                                  .atomics = false,
                                  .put_before_send = false};

using usual = protocols<eager<>, segmented<>>;
using fixed = protocols<eager<up_to<512>>, segmented<up_to<1_MiB>>>;
using only_eager = protocols<eager<>>;
using only_segmented = protocols<segmented<>>;

}  // namespace

// The choice is made by the compiler.
static_assert(usual::choose({0, false}, small_link) == 0);
static_assert(usual::choose({2000, false}, small_link) == 0);
static_assert(usual::choose({2001, false}, small_link) == 1);
static_assert(usual::choose({0, true}, small_link) == 1);
static_assert(usual::choose({static_cast<std::size_t>(-1), false}, small_link) == 1);
static_assert(fixed::choose({512, false}, small_link) == 0);
static_assert(fixed::choose({513, false}, small_link) == 1);
static_assert(fixed::choose({1_MiB, false}, small_link) == 1);
static_assert(fixed::choose({1_MiB + 1, false}, small_link) == fixed::none);
static_assert(only_eager::choose({2001, false}, small_link) == only_eager::none);
static_assert(only_eager::choose({1, true}, small_link) == only_eager::none);
static_assert(only_segmented::choose({1, false}, small_link) == 0);
static_assert(usual::choose({4096, false}, shm::static_capabilities) == 0);
static_assert(usual::choose({4097, false}, shm::static_capabilities) == 1);
// An eager limit above what one message may carry does not count.
static_assert(protocols<eager<up_to<20000>>, segmented<>>::choose({10001, false}, small_link) == 1);

// Kinds on the wire: part of the protocol.
static_assert(detail::first_policy_kind == 8);
static_assert(usual::first_kind<eager<>>() == 8);
static_assert(usual::first_kind<segmented<>>() == 9);
static_assert(only_segmented::first_kind<segmented<>>() == 8);
static_assert(segmented<>::kinds == 5 && eager<>::kinds == 1);
static_assert(usual::index_of<segmented<>>() == 1);

// The fingerprint tells lists apart by policies, order and limits.
static_assert(usual::fingerprint == protocols<eager<>, segmented<>>::fingerprint);
static_assert(usual::fingerprint != protocols<segmented<>, eager<>>::fingerprint);
static_assert(usual::fingerprint != only_eager::fingerprint);
static_assert(usual::fingerprint != only_segmented::fingerprint);
static_assert(usual::fingerprint != fixed::fingerprint);
static_assert(protocols<eager<up_to<512>>>::fingerprint != protocols<eager<up_to<513>>>::fingerprint);
// A change here is a change of the wire protocol.
static_assert(usual::fingerprint == 0xf99a7e2411e6f06b);

static_assert(protocol_list<usual>);
static_assert(!protocol_list<eager<>>);
static_assert(1_KiB == 1024 && 2_MiB == 2097152);

TEST_CASE("a list says its policies and their limits") {
    CHECK(usual::text() == "eager, segmented");
    CHECK(fixed::text() == "eager<512>, segmented<1048576>");
    using mixed = protocols<speculative<put_rendezvous<>>, get_rendezvous<up_to<65536>, from<4096>>,
                            put_rendezvous<up_to_transport, from_transport>>;
    CHECK(mixed::text() == "speculative<put_rendezvous>, get_rendezvous<up to 65536, from 4096>, "
                           "put_rendezvous<from the transport's limit>");
    CHECK(usual::name_of(0) == "eager");
    CHECK(usual::name_of(1) == "segmented");
    CHECK(usual::name_of(usual::none) == "none");
    CHECK_FALSE(std::string(usual::description_of(0)).empty());
    CHECK(usual::longest_of(0, small_link) == 2000);
    CHECK(fixed::longest_of(1, small_link) == 1_MiB);
}

namespace {
struct fake_context {};
struct visited {
    int eager = 0;
    int segmented = 0;
    unsigned kind = 99;
};
}  // namespace

TEST_CASE("a wire kind is dispatched to its policy with the policy's own number") {
    visited seen;
    fake_context context;
    usual::engines<fake_context> engines(context);
    const auto visit = [&](auto& engine, unsigned kind) noexcept {
        if constexpr (std::is_same_v<std::remove_reference_t<decltype(engine)>,
                                     eager<>::engine<fake_context>>) {
            ++seen.eager;
        } else {
            ++seen.segmented;
        }
        seen.kind = kind;
    };
    for (unsigned wire = 0; wire < 256; ++wire) {
        seen = {};
        const bool known = engines.dispatch(static_cast<std::uint8_t>(wire), visit);
        CHECK(known == (wire >= 8 && wire <= 13));
        CHECK(seen.eager == (wire == 8 ? 1 : 0));
        CHECK(seen.segmented == (wire >= 9 && wire <= 13 ? 1 : 0));
        if (known) CHECK(seen.kind == (wire == 8 ? 0 : wire - 9));
    }
}
