#include <rdmacoro/protocol/detail/rendezvous_receiver.hpp>

#include <rdmacoro/protocol/cooperative_rendezvous.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/named_in_sequence.hpp"
#include "support/rendezvous_lists.hpp"

#include <algorithm>
#include <deque>
#include <optional>

namespace test_protocol_detail_rendezvous_receiver {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::rendezvous;

namespace {
remote_region somewhere(std::uint64_t bytes) { return {0x1000, bytes, 0x1234567890}; }
}  // namespace

TEST_CASE("a receive canceled while it is got leaves its stream as good as new") {
    with_pair<get_list>([](endpoint_pair<get_list>& pair) -> task<> {
        pair.from_b().defers_one_sided = true;
        pair.from_b().one_sided_steps = 0;
        pair.from_b().one_sided_room = 0;
        const auto data = pattern(100);
        std::vector<std::byte> into(100);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
        auto sending = start(pair.a.send(data, 1));
        co_await turns(5);
        check_stage("recv", "no room for the next get", next_actor::device);
        pair.from_b().one_sided_room = loopback_lane::unlimited;
        co_await turns(3);
        check_stage("recv", "is being got", next_actor::device);
        stop.request_stop();
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        co_await sending;
        pair.from_b().one_sided_steps = loopback_lane::unlimited;
        co_await works(pair);
    });
}

TEST_CASE("a canceled receive ends when its sender is no longer in the middle of a put") {
    with_rendezvous_peer<put_list>([](put_peer& peer) -> task<> {
        std::vector<std::byte> into(100);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        peer.to_peer().room = 0;
        say(peer, rv::request, 1, request_body(0, 100));
        co_await turns(3);
        check_stage("recv", "met, no room to ask for it", next_actor::device);
        peer.to_peer().room = loopback_lane::unlimited;
        const heard_message ready = co_await peer.hear();
        CHECK(is(ready, rv::ready));
        check_stage("recv", "met, the peer has not put it", next_actor::peer_poll);
        peer.from_peer().touches = true;
        peer.to_peer().room = 0;
        stop.request_stop();
        co_await turns(3);
        check_stage("recv", "canceled, no room to say so", next_actor::device);
        peer.to_peer().room = loopback_lane::unlimited;
        const heard_message withdraw = co_await peer.hear();
        CHECK(is(withdraw, rv::withdraw));
        co_await turns(20);
        CHECK_FALSE(receiving.done());
        check_stage("recv", "canceled, the peer has not answered", next_actor::peer_poll);
        peer.from_peer().touches = false;
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        say(peer, rv::sent, 0, {}, 1);
        auto next = start(peer.self().recv(into, 2));
        say(peer, rv::request, 2, request_body(0, 0), 1);
        co_await next;
        CHECK(peer.self().is_open());
    });
}

TEST_CASE(
    "a canceled receive that both ends copied ends when the sender is no longer in the middle of its part") {
    using together = protocols<cooperative_rendezvous<>>;
    with_pair<together>([](endpoint_pair<together>& pair) -> task<> {
        const auto data = pattern(100'000);
        std::vector<std::byte> into(data.size());
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
        auto sending = start(pair.a.send(data, 1));
        while (pair.from_a().copied_together == 0) co_await yield();
        CHECK_FALSE(receiving.done());
        pair.from_a().touches = true;
        stop.request_stop();
        co_await turns(20);
        CHECK_FALSE(receiving.done());
        CHECK_FALSE(sending.done());  // not before the number may be used again
        check_stage("recv", "canceled, the peer is in the middle of a copy", next_actor::peer_poll);
        pair.from_a().touches = false;
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        co_await sending;
        co_await works(pair);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("withdraw that crosses the last sent does not hit the stream's next message") {
    with_rendezvous_peer<put_list>([](put_peer& peer) -> task<> {
        const auto data = pattern(100);
        std::vector<std::byte> there(100);
        const region open = peer.link().expose(there, access_rights::remote_write);
        auto first = start(peer.self().send(data, 1));
        heard_message heard = co_await peer.hear();
        CHECK(heard.header.flags == 0);
        say(peer, rv::ready, 0, ready_body(0, {open.remote()}));
        co_await first;
        heard = co_await peer.hear();
        CHECK(is(heard, rv::sent));
        auto second = start(peer.self().send(data, 2));
        heard = co_await peer.hear();
        CHECK(heard.header.flags == 1);
        say(peer, rv::withdraw, 0);  // meant for the first
        co_await turns(5);
        CHECK_FALSE(second.done());
        CHECK(peer.heard().empty());
        say(peer, rv::withdraw, 0, {}, 1);  // meant for this one
        co_await second;
        heard = co_await peer.hear();
        CHECK(is(heard, rv::sent));
        CHECK(heard.header.flags == 1);
    });
}

TEST_CASE("abandon takes an unmatched message away and ends a matched receive with peer_canceled") {
    with_rendezvous_peer<get_list>([](get_peer& peer) -> task<> {
        say(peer, rv::request, 3, request_body(0, 10));
        co_await peer.self().probe(3);
        say(peer, rv::abandon, 0);
        heard_message said = co_await peer.hear();
        CHECK(is(said, rv::gone));
        CHECK(peer.self().connection().mailbox().matching().unexpected() == 0);
        std::byte into[10];
        auto receiving = start(peer.self().recv(into, 3));
        say(peer, rv::request, 3, request_body(0, 10), 1);
        said = co_await peer.hear();
        CHECK(is(said, rv::ready));
        say(peer, rv::abandon, 0);
        const auto ended = co_await as_result(receiving);
        CHECK(ended.error() == errc::peer_canceled);
        said = co_await peer.hear();
        CHECK(is(said, rv::gone));
    });
}

TEST_CASE("memory that was refused ends the link only when the peer never says why") {
    for (const bool explained : {true, false}) {
        CAPTURE(explained);
        virtual_time world;
        world.run([](virtual_time& w, bool says_why) -> task<> {
            get_peer peer(w.on);
            co_await peer.open();
            auto data = pattern(100);
            std::byte into[100];
            region gone = peer.link().expose(data, access_rights::remote_read);
            const remote_region there = gone.remote();
            gone.reset();
            auto receiving = start(as_result(peer.self().recv(into, 1)));
            say(peer, rv::request, 1, request_body(0, 100, {there}));
            const duration before = w.now();
            if (says_why) {
                co_await sleep_for(std::chrono::milliseconds(900));
                check_stage("recv", "the peer closed its memory and has not said why", next_actor::peer_poll);
                say(peer, rv::abandon, 0);
                const auto first = co_await receiving;
                CHECK(first.error() == errc::peer_canceled);
                // A second refusal has a second of its own.
                auto again = start(as_result(peer.self().recv(into, 1)));
                say(peer, rv::request, 1, request_body(0, 100, {there}));
                co_await sleep_for(std::chrono::milliseconds(900));
                say(peer, rv::abandon, 0);
                const auto second = co_await again;
                CHECK(second.error() == errc::peer_canceled);
                CHECK(peer.self().is_open());
            } else {
                const auto ended = co_await receiving;
                CHECK(ended.error() == errc::protocol_violation);
                CHECK(w.now() - before >= detail::refusal_timer::grace);
            }
        }(world, explained));
    }
}

TEST_CASE("what makes no sense to a receiver ends the link with protocol_violation") {
    const forbidden<get_peer> all[] = {
        {"an empty request", [](get_peer& p) { say(p, rv::request, 1); }},
        {"a request too short", [](get_peer& p) { say(p, rv::request, 1, filled(15, 0)); }},
        {"half a piece", [](get_peer& p) { say(p, rv::request, 1, filled(16 + 23, 0)); }},
        {"17 pieces", [](get_peer& p) { say(p, rv::request, 1, filled(16 + 17 * 24, 0)); }},
        {"more than any control message has", [](get_peer& p) { say(p, rv::request, 1, filled(5000, 0)); }},
        {"a request that comes in parts",
         [](get_peer& p) {
             p.from_peer().announces_above = 10;
             say(p, rv::request, 1, request_body(0, 10));
         }},
        {"flags that do not exist", [](get_peer& p) { say(p, rv::request, 1, request_body(0, 10), 2); }},
        {"a stream number too high",
         [](get_peer& p) { say(p, rv::request, 1, request_body(detail::most_streams, 10)); }},
        {"the highest stream number", [](get_peer& p) { say(p, rv::request, 1, request_body(~0u, 10)); }},
        {"an impossible length",
         [](get_peer& p) { say(p, rv::request, 1, request_body(0, (std::uint64_t{1} << 62) + 1)); }},
        {"pieces that are too short",
         [](get_peer& p) { say(p, rv::request, 1, request_body(0, 10, {somewhere(9)})); }},
        {"pieces that are too long",
         [](get_peer& p) { say(p, rv::request, 1, request_body(0, 10, {somewhere(5), somewhere(6)})); }},
        {"pieces whose lengths overflow",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10, {somewhere(~std::uint64_t{0} - 4), somewhere(15)}));
         }},
        {"a stream in use",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::request, 1, request_body(0, 10));
         }},
        {"sent for no stream", [](get_peer& p) { say(p, rv::sent, 0); }},
        {"sent for a stream far away", [](get_peer& p) { say(p, rv::sent, ~std::uint64_t{0}); }},
        {"sent that nobody asked for",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::sent, 0);
         }},
        {"abandon for no stream", [](get_peer& p) { say(p, rv::abandon, 0); }},
        {"abandon for a stream far away", [](get_peer& p) { say(p, rv::abandon, std::uint64_t{1} << 32); }},
        {"abandon with a payload",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::abandon, 0, filled(1, 0));
         }},
        {"abandon twice",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::abandon, 0);
             say(p, rv::abandon, 0);
         }},
        {"ready for no stream", [](get_peer& p) { say(p, rv::ready, 0, ready_body(0, {somewhere(1)})); }},
        {"received for no stream", [](get_peer& p) { say(p, rv::received, 0); }},
        {"gone for no stream", [](get_peer& p) { say(p, rv::gone, 0); }},
        {"withdraw for no stream", [](get_peer& p) { say(p, rv::withdraw, 0); }},
    };
    for (const auto& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden<get_peer>& what) -> task<> {
            get_peer peer(on);
            co_await peer.open();
            std::byte into[4];
            auto receiving = start(peer.self().recv(into, 99));
            what.act(peer);
            const auto ended = co_await as_result(receiving);
            CHECK(ended.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

TEST_CASE("a sender names its streams in order, and one beyond the next ends the link and makes none") {
    check_named_in_sequence<get_peer>(detail::most_streams, [](get_peer& p, std::uint32_t id) {
        say(p, rv::request, 1, request_body(id, 10));
    });
}

}  // namespace test_protocol_detail_rendezvous_receiver
