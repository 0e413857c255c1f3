#include <rdmacoro/protocol/protocols.hpp>

#include "support/catch.hpp"
#include "support/loopback.hpp"

#include <rdmacoro/transport/shm.hpp>

#include <string>

namespace test_protocol_protocols {

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
static_assert(segmented<>::kinds == 6 && eager<>::kinds == 1);
static_assert(usual::index_of<segmented<>>() == 1);

// The fingerprint tells lists apart by policies, order and limits.
static_assert(usual::fingerprint == protocols<eager<>, segmented<>>::fingerprint);
static_assert(usual::fingerprint != protocols<segmented<>, eager<>>::fingerprint);
static_assert(usual::fingerprint != only_eager::fingerprint);
static_assert(usual::fingerprint != only_segmented::fingerprint);
static_assert(usual::fingerprint != fixed::fingerprint);
static_assert(protocols<eager<up_to<512>>>::fingerprint != protocols<eager<up_to<513>>>::fingerprint);
// A change here is a change of the wire protocol.
static_assert(usual::fingerprint == 0xf81929016a849032);

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
struct visited {
    int first = 0;
    int second = 0;
    unsigned kind = 99;
};

/// A policy with `Kinds` kinds whose engine only has its number.
template <unsigned Number, unsigned Kinds>
struct numbered {
    static constexpr std::string_view name = "numbered";
    static constexpr std::string_view description = "for its number";
    static constexpr std::uint8_t kinds = Kinds;
    static constexpr std::size_t longest(const capabilities&) noexcept { return 0; }
    static constexpr bool admits(const message_facts&, const capabilities&) noexcept { return false; }
    static constexpr std::uint64_t parameter() noexcept { return Number; }

    template <class Context>
    struct engine {
        explicit engine(Context&) noexcept {}
        static constexpr unsigned number = Number;

        start_result start(detail::send_request&) noexcept { return start_result::wait_room; }
        void transmitted(detail::send_request&, std::error_code) noexcept {}
        void cancel_send(detail::send_request&) noexcept {}
        delivery arrived(unsigned, const detail::wire_header&, std::span<const std::byte>) noexcept {
            return delivery::taken;
        }
        delivery begin_payload(unsigned, const detail::wire_header&, std::size_t) noexcept {
            return delivery::taken;
        }
        std::span<std::byte> payload_space() noexcept { return {}; }
        void payload_arrived(std::size_t) noexcept {}
        void matched(detail::unexpected_message&, detail::receive_request&) noexcept {}
        bool forget_receive(detail::receive_request&) noexcept { return true; }
        void writable() noexcept {}
        void fail(std::error_code) noexcept {}
    };
};
struct any_context {};
}  // namespace

TEST_CASE("a wire kind is dispatched to its policy with the policy's own number") {
    visited seen;
    any_context context;
    protocols<numbered<1, 1>, numbered<2, 5>>::engines<any_context> engines(context);
    const auto visit = [&](auto& engine, unsigned kind) noexcept {
        ++(engine.number == 1 ? seen.first : seen.second);
        seen.kind = kind;
    };
    for (unsigned wire = 0; wire < 256; ++wire) {
        seen = {};
        const bool known = engines.dispatch(static_cast<std::uint8_t>(wire), visit);
        CHECK(known == (wire >= 8 && wire <= 13));
        CHECK(seen.first == (wire == 8 ? 1 : 0));
        CHECK(seen.second == (wire >= 9 && wire <= 13 ? 1 : 0));
        if (known) CHECK(seen.kind == (wire == 8 ? 0 : wire - 9));
    }
}

}  // namespace test_protocol_protocols
