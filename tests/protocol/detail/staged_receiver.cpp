#include <rdmacoro/protocol/detail/staged_receiver.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/named_in_sequence.hpp"
#include "support/staged.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_detail_staged_receiver {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::staged;

TEST_CASE("a receiver gets straight to the destination, says received, and nothing else") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const peer_block from(peer);
        std::vector<std::byte> into(4000);
        auto receiving = start(peer.self().recv(into, 7));
        for (std::uint32_t n = 0; n < 5; ++n) from.ask(peer, n, 0, 1);  // blocks are named in order
        from.ask(peer, 5, 3001, 7);
        const received got = co_await receiving;
        CHECK(got.bytes == 3001);
        CHECK(got.tag == 7);
        CHECK(from.holds(std::span(into).first(3001)));
        CHECK(into[3001] == std::byte{0});
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x09, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        CHECK(peer.self().counts().payload_copies == 0);
        CHECK(peer.self().counts().bytes_received == 3001);
        co_await turns(3);
        CHECK(peer.heard().empty());
    });
}

TEST_CASE("an unmatched message stays at the sender, and costs no more than an empty message") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const peer_block from(peer);
        const std::uint64_t gets = peer.to_peer().gets;
        for (std::uint32_t n = 0; n < blocks; ++n) from.ask(peer, n, 16384, n);
        co_await peer.self().probe(blocks - 1);
        CHECK(peer.to_peer().gets == gets);
        auto& box = peer.self().connection().mailbox();
        CHECK(box.store().live() == blocks);
        CHECK(box.store().footprint() <= 64 * 1024);
        const received seen = co_await peer.self().probe(3);
        CHECK(seen.bytes == 16384);
        CHECK(peer.heard().empty());
        std::vector<std::byte> into(16384);
        co_await peer.self().recv(into, 3);
        CHECK(from.holds(into));
        const heard_message said = co_await peer.hear();
        CHECK(said.header.kind == received_kind);
        CHECK(said.header.tag == 3);
        CHECK(said.header.credits == detail::message_cost(0));
    });
}

TEST_CASE("a receive may be canceled at any moment, and its memory is free when it has ended") {
    unsigned canceled = 0;
    for (int turn = 0; turn < 6; ++turn) {
        for (unsigned bits = 0; bits < 64; ++bits) {
            CAPTURE(turn, bits);
            virtual_time world;
            world.run([](scheduler& on, int when, unsigned ways, unsigned& ended_so) -> task<> {
                pair_type pair(on);
                co_await pair.open();
                const bool gathered = (ways & 1) != 0;
                const bool at_once = (ways & 2) != 0;
                const bool lent = (ways & 4) != 0;
                pair.wire->offered.revokes_at_once = at_once;
                pair.from_b().defers_one_sided = true;
                pair.from_b().one_sided_steps = (ways & 8) != 0 ? 0 : 1;
                pair.from_b().one_sided_room = (ways & 16) != 0 ? 0 : loopback_lane::unlimited;
                pair.from_b().room = (ways & 32) != 0 ? 0 : loopback_lane::unlimited;
                auto into = std::make_unique<scattered>(gathered ? 20 : 1, gathered ? 20 : 400, 4);
                local_stop_source stop;
                std::optional<decltype(start(as_result(with_stop(pair.b.recv({}, 1), stop.get_token()))))>
                    receiving;
                std::optional<decltype(start(as_result(with_stop(pair.b.recv_lent(1), stop.get_token()))))>
                    lending;
                if (lent)
                    lending.emplace(as_result(with_stop(pair.b.recv_lent(1), stop.get_token())));
                else
                    receiving.emplace(as_result(with_stop(pair.b.recv(into->into(), 1), stop.get_token())));
                co_await turns(1);
                co_await pair.a.send(pattern(400), 1);
                co_await turns(when);
                stop.request_stop();
                co_await turns(2);
                if (!lent && receiving->done()) {
                    const auto ended = co_await *receiving;
                    CHECK(into->gaps_untouched());
                    if (!ended) {
                        CHECK(ended.error() == errc::canceled);
                        ++ended_so;
                    } else {
                        CHECK(into->gathered(400) == pattern(400));
                    }
                    receiving.reset();
                    into.reset();  // an address sanitizer sees a later access
                }
                co_await turns(2);
                pair.from_b().room = pair.from_b().one_sided_room = pair.from_b().one_sided_steps =
                    loopback_lane::unlimited;
                if (receiving) {
                    CHECK_FALSE(at_once);
                    CHECK_FALSE(gathered);
                    const auto ended = co_await *receiving;
                    CHECK(ended.error() == errc::canceled);
                    ++ended_so;
                }
                if (lending) {
                    const auto ended = co_await *lending;
                    if (!ended) CHECK(ended.error() == errc::canceled);
                }
                lending.reset();
                co_await turns(5);
                if (pair.b.connection().mailbox().matching().unexpected() != 0) {
                    std::vector<std::byte> left(400);  // canceled before the message came
                    co_await pair.b.recv(left, 1);
                }
                for (int n = 0; n < 4; ++n) co_await works(pair);
                CHECK(pair.a.counts().regions_exposed <= 2);
                CHECK(at_rest(pair));
            }(world.on, turn, bits, canceled));
        }
    }
    CHECK(canceled > 50);
}

TEST_CASE("a get to the receiver's own block goes on when its receive has been canceled") {
    for (const bool at_once : {false, true}) {
        virtual_time world;
        world.run([](scheduler& on, bool revokes) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.wire->offered.revokes_at_once = revokes;
            pair.from_b().defers_one_sided = true;
            pair.from_b().one_sided_steps = 0;
            pair.from_b().one_sided_room = 0;
            scattered into(20, 20, 4);
            local_stop_source stop;
            auto receiving = start(as_result(with_stop(pair.b.recv(into.into(), 1), stop.get_token())));
            co_await pair.a.send(pattern(400), 1);
            co_await turns(5);
            check_stage("recv", "no room for the next get", next_actor::device);
            pair.from_b().one_sided_room = loopback_lane::unlimited;
            co_await turns(3);
            check_stage("recv", "is being got", next_actor::device);
            stop.request_stop();
            const auto ended = co_await receiving;
            CHECK(ended.error() == errc::canceled);
            auto closing = start(pair.a.close());
            co_await turns(5);
            CHECK_FALSE(closing.done());  // its block is still being read
            pair.from_b().one_sided_steps = loopback_lane::unlimited;
            co_await closing;
            CHECK(into.gathered(400) == std::vector<std::byte>(400, std::byte{0xee}));
        }(world.on, at_once));
    }
}

TEST_CASE("the end of the link ends every receive and frees every block, whatever they were doing") {
    for (unsigned bits = 0; bits < 32; ++bits) {
        CAPTURE(bits);
        virtual_time world;
        world.run([](scheduler& on, unsigned ways) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.wire->offered.revokes_at_once = (ways & 1) != 0;
            pair.from_b().defers_one_sided = true;
            pair.from_b().one_sided_steps = 0;
            pair.from_b().one_sided_room = (ways & 8) != 0 ? 0 : loopback_lane::unlimited;
            scattered one(1, 400, 4);
            scattered several(20, 20, 4);
            local_stop_source stop;
            auto first = start(as_result(with_stop(pair.b.recv(one.into(), 1), stop.get_token())));
            auto second = start(as_result(pair.b.recv(several.into(), 2)));
            auto third = start(as_result(pair.b.recv_lent(3)));
            for (tag_type tag = 1; tag < 5; ++tag) co_await pair.a.send(pattern(400), tag);
            co_await turns(4);
            if ((ways & 2) != 0) stop.request_stop();
            auto closing = start(pair.b.probe(4));
            co_await closing;
            if ((ways & 16) != 0) {
                auto leaving_now = start(pair.a.close());
                co_await turns(4);
                pair.b.abort();
                co_await leaving_now;
            }
            ((ways & 4) != 0 ? pair.a : pair.b).abort();
            const auto ended = co_await first;
            CHECK_FALSE(ended);
            const auto other = co_await second;
            CHECK_FALSE(other);
            const auto lent = co_await third;
            CHECK_FALSE(lent);
            CHECK(one.gathered(400) == std::vector<std::byte>(400, std::byte{0xee}));
            while (pair.a.is_open() || pair.b.is_open()) co_await yield();
            CHECK(pair.at_rest());
            CHECK(pair.domain.regions().registered() == 0);
        }(world.on, bits));
    }
}

TEST_CASE("a source that was refused ends the link after its time, and its receive may be canceled before") {
    for (const bool canceled : {false, true}) {
        CAPTURE(canceled);
        virtual_time world;
        world.run([](virtual_time& w, bool cancels) -> task<> {
            peer_type peer(w.on);
            co_await peer.open(1u << 20);
            std::byte into[100];
            local_stop_source stop;
            auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
            peer.send_raw(request, 1, body(0, 100, {0x1000, 100, 0x1234567890}));
            const duration before = w.now();
            co_await turns(5);
            CHECK_FALSE(receiving.done());
            check_stage("recv", "the peer's memory was refused", next_actor::peer_poll);
            if (cancels) {
                stop.request_stop();
                const auto ended = co_await receiving;
                CHECK(ended.error() == errc::canceled);
                while (peer.self().is_open()) co_await sleep_for(std::chrono::milliseconds(100));
            } else {
                const auto ended = co_await receiving;
                CHECK(ended.error() == errc::protocol_violation);
            }
            CHECK(w.now() - before >= detail::refusal_timer::grace);
            CHECK(peer.heard().empty());
        }(world, canceled));
    }
}

TEST_CASE("what a block's region does not hold is refused as well") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const peer_block from(peer, 1024);
        std::vector<std::byte> into(2000);
        auto receiving = start(as_result(peer.self().recv(into, 1)));
        from.ask(peer, 0, 1025, 1);
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::protocol_violation);
        CHECK(into == std::vector<std::byte>(2000));
    });
}

namespace {

constexpr remote_region somewhere{0x1000, 64, 0x1234567890};

}  // namespace

TEST_CASE("what makes no sense of staged messages ends the link with protocol_violation") {
    const forbidden<peer_type> all[] = {
        {"an empty request", [](peer_type& p) { p.send_raw(request, 1, {}); }},
        {"a request that is too short",
         [](peer_type& p) {
             auto b = body(0, 10, somewhere);
             b.pop_back();
             p.send_raw(request, 1, b);
         }},
        {"a request that is too long",
         [](peer_type& p) {
             auto b = body(0, 10, somewhere);
             b.push_back({});
             p.send_raw(request, 1, b);
         }},
        {"a request with a flag", [](peer_type& p) { p.send_raw(request, 1, body(0, 10, somewhere), 0, 1); }},
        {"a block that can't be", [](peer_type& p) { p.send_raw(request, 1, body(blocks, 10, somewhere)); }},
        {"a message above the limit",
         [](peer_type& p) { p.send_raw(request, 1, body(0, 16385, somewhere)); }},
        {"the longest length", [](peer_type& p) { p.send_raw(request, 1, body(0, 0xffffffff, somewhere)); }},
        {"a block that is not aligned",
         [](peer_type& p) { p.send_raw(request, 1, body(0, 10, {0x1020, 64, 7})); }},
        {"a block that is in use",
         [](peer_type& p) {
             p.send_raw(request, 1, body(0, 10, somewhere));
             p.send_raw(request, 2, body(0, 10, somewhere));
         }},
        {"leaving twice",
         [](peer_type& p) {
             p.send_raw(leaving, 0, {});
             p.send_raw(leaving, 0, {});
         }},
        {"leaving with a tag", [](peer_type& p) { p.send_raw(leaving, 1, {}); }},
        {"leaving with a flag", [](peer_type& p) { p.send_raw(leaving, 0, {}, 0, 1); }},
        {"leaving with a payload", [](peer_type& p) { p.send_raw(leaving, 0, raw({1})); }},
        {"received for a block that never was", [](peer_type& p) { p.send_raw(received_kind, 0, {}); }},
        {"received for no block", [](peer_type& p) { p.send_raw(received_kind, ~tag_type{0}, {}); }},
        {"a kind that is nobody's", [](peer_type& p) { p.send_raw(leaving + 1, 0, {}); }},
    };
    for (const auto& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden<peer_type>& what) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            std::byte into[4];
            auto receiving = start(as_result(peer.self().recv(into, 99)));
            what.act(peer);
            const auto ended = co_await receiving;
            CHECK(ended.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

TEST_CASE("a sender names its blocks in order, and one beyond the next ends the link and makes none") {
    check_named_in_sequence<peer_type>(
        blocks, [](peer_type& p, std::uint32_t id) { p.send_raw(request, 1, body(id, 10, somewhere)); });
}

TEST_CASE("a peer that leaves and names memory it has not opened is refused, too") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        peer.send_raw(request, 1, body(0, 10, somewhere));
        co_await peer.self().probe(1);
        peer.send_raw(leaving, 0, {});
        co_await turns(3);
        std::byte into[10];
        auto receiving = start(as_result(peer.self().recv(into, 1)));
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::protocol_violation);
    });
}

}  // namespace test_protocol_detail_staged_receiver
