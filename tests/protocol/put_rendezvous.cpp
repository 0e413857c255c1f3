#include <rdmacoro/protocol/put_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/rendezvous.hpp"

#include <deque>

namespace test_protocol_put_rendezvous {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using list = protocols<put_rendezvous<>>;
using peer_type = basic_scripted_peer<list>;
using pair_type = endpoint_pair<list>;

}  // namespace

TEST_CASE("a message that is put is a request without memory, ready, and sent behind the data") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> there(700);
        const region open = peer.link().expose(there, access_rights::remote_write);
        auto sending = start(peer.self().send(data, 0x1122334455667788));
        heard_message heard = co_await peer.hear();
        CHECK(bytes_of(heard) == raw({0x08, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}));
        CHECK(heard.payload == raw({0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xbc, 0x02, 0, 0, 0, 0, 0, 0}));
        co_await turns(5);
        CHECK_FALSE(sending.done());
        say(peer, rv::ready, 0, ready_body(0, {open.remote().part(0, 300), open.remote().part(300, 400)}));
        co_await sending;
        CHECK(there == data);
        heard = co_await peer.hear();
        CHECK(bytes_of(heard) == raw({0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(heard.payload.empty());
        CHECK(peer.self().counts().put_sent == 1);
        CHECK(peer.self().counts().switched_to_put == 0);
    });
}

TEST_CASE("a receiver names its memory, and takes the peer's word that the data is there") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> into(800);
        auto receiving = start(peer.self().recv(into, 7));
        use_streams_before(peer, 3);
        say(peer, rv::request, 7, request_body(3, 700));
        const heard_message ready = co_await peer.hear();
        CHECK(bytes_of(ready) == raw({0x09, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}));
        const auto where = destination_of(ready);
        REQUIRE(where.size() == 1);
        CHECK(where[0].address == reinterpret_cast<std::uint64_t>(into.data()));
        CHECK(where[0].length == 700);
        CHECK(ready.payload == ready_body(0, {where[0]}));
        recording_completion done;
        CHECK(peer.link().put(data, where[0], done) == post_result::done);
        co_await turns(5);
        CHECK_FALSE(receiving.done());
        say(peer, rv::sent, 3);
        const received got = co_await receiving;
        CHECK(got.bytes == 700);
        CHECK(got.tag == 7);
        CHECK(std::equal(data.begin(), data.end(), into.begin()));
        // The memory is closed to the peer from then on.
        CHECK(peer.link().put(data, where[0], done) == post_result::posted);
        while (done.calls == 0) co_await yield();
        CHECK(done.outcome == errc::bad_key);
    });
}

TEST_CASE("a destination of more than 16 pieces is asked for in rounds") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(40 * 10);
        scattered into(40, 10, 6);
        auto receiving = start(peer.self().recv(into.into(), 7));
        say(peer, rv::request, 7, request_body(0, 400));
        std::size_t at = 0;
        for (const std::size_t pieces : {16u, 16u, 8u}) {
            const heard_message ready = co_await peer.hear();
            CHECK(detail::load_number<std::uint64_t>(ready.payload.data()) == at);
            const auto where = destination_of(ready);
            REQUIRE(where.size() == pieces);
            for (const remote_region& r : where) {
                recording_completion done;
                CHECK(peer.link().put(std::span(data).subspan(at, 10), r, done) == post_result::done);
                at += 10;
            }
            CHECK_FALSE(receiving.done());
            say(peer, rv::sent, 0);
        }
        co_await receiving;
        CHECK(into.gathered(400) == data);
        CHECK(into.gaps_untouched());
    });
}

TEST_CASE("a sender says sent after each round and ends with the last") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(100);
        std::vector<std::byte> there(100);
        const region open = peer.link().expose(there, access_rights::remote_write);
        auto sending = start(peer.self().send(data, 1));
        co_await peer.hear();
        for (const std::size_t at : {0u, 25u, 50u}) {
            peer.to_peer().room = 0;
            say(peer, rv::ready, 0, ready_body(at, {open.remote().part(at, 25)}));
            co_await turns(3);
            CHECK(peer.heard().empty());
            check_stage("send", "a part is put, no room to say so", next_actor::device);
            peer.to_peer().room = loopback_lane::unlimited;
            const heard_message sent = co_await peer.hear();
            CHECK(is(sent, rv::sent));
            CHECK(sent.header.flags == 0);
            CHECK_FALSE(sending.done());
            check_stage("send", "a part is put, the peer has not asked for the next", next_actor::peer_poll);
        }
        say(peer, rv::ready, 0, ready_body(75, {open.remote().part(75, 25)}));
        co_await sending;
        CHECK(there == data);
    });
}

TEST_CASE("sent waits until every put is over, several under way at a time") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(160);
        std::vector<std::byte> there(160);
        const region open = peer.link().expose(there, access_rights::remote_write);
        peer.to_peer().defers_one_sided = true;
        peer.to_peer().one_sided_steps = 0;
        auto sending = start(peer.self().send(data, 1));
        co_await peer.hear();
        const auto part = [&](std::uint64_t n) { return open.remote().part(n * 20, 20); };
        say(peer, rv::ready, 0,
            ready_body(0, {part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)}));
        co_await turns(5);
        const std::uint64_t at_once = peer.to_peer().puts;
        CHECK(at_once > 1);
        CHECK(at_once < 8);
        for (std::size_t n = 0; n < 7; ++n) {
            peer.to_peer().one_sided_steps = 1;
            co_await turns(5);
            CHECK_FALSE(sending.done());
            CHECK(peer.heard().empty());
        }
        CHECK(peer.to_peer().puts == 8);
        peer.to_peer().one_sided_steps = 1;
        co_await sending;
        CHECK(there == data);
    });
}

TEST_CASE("puts that find no room go on when the link is writable") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(100);
        std::vector<std::byte> there(100);
        const region open = peer.link().expose(there, access_rights::remote_write);
        peer.to_peer().one_sided_room = 0;
        auto sending = start(peer.self().send(data, 1));
        co_await peer.hear();
        say(peer, rv::ready, 0, ready_body(0, {open.remote()}));
        co_await turns(5);
        CHECK_FALSE(sending.done());
        CHECK(peer.to_peer().retries > 0);
        check_stage("send", "no room for the next put", next_actor::device);
        peer.to_peer().one_sided_room = loopback_lane::unlimited;
        co_await sending;
        CHECK(there == data);
    });
}

TEST_CASE("a receive that gives up while it is put to says withdraw, and its memory is closed") {
    for (const bool at_once : {true, false}) {
        CAPTURE(at_once);
        virtual_time world;
        world.run([](scheduler& on, bool revokes) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            peer.wire().offered.revokes_at_once = revokes;
            const auto data = pattern(100);
            std::vector<std::byte> into(100);
            local_stop_source stop;
            auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
            use_streams_before(peer, 2);
            say(peer, rv::request, 1, request_body(2, 100), 1);
            const heard_message ready = co_await peer.hear();
            stop.request_stop();
            const heard_message withdraw = co_await peer.hear();
            CHECK(bytes_of(withdraw) == raw({0x0e, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}));
            co_await turns(3);
            CHECK(receiving.done() == revokes);
            recording_completion done;
            const post_result put = peer.link().put(data, destination_of(ready).at(0), done);
            CHECK(put == (revokes ? post_result::posted : post_result::done));
            say(peer, rv::sent, 2, {}, revokes ? 1 : 0);
            const auto ended = co_await receiving;
            CHECK(ended.error() == errc::canceled);
            if (revokes) CHECK(into == std::vector<std::byte>(100));
            // The stream is free.
            auto again = start(peer.self().recv(into, 1));
            say(peer, rv::request, 1, request_body(2, 0));
            co_await again;
        }(world.on, at_once));
    }
}

TEST_CASE("a receive that gives up between rounds hears of the round before and waits for the last word") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        peer.wire().offered.revokes_at_once = false;
        scattered into(20, 10, 6);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into.into(), 1), stop.get_token())));
        say(peer, rv::request, 1, request_body(0, 200));
        co_await peer.hear();
        stop.request_stop();
        const heard_message withdraw = co_await peer.hear();
        CHECK(is(withdraw, rv::withdraw));
        say(peer, rv::sent, 0);  // of the first round: it crossed
        co_await turns(5);
        CHECK_FALSE(receiving.done());
        say(peer, rv::sent, 0, {}, 1);
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
    });
}

TEST_CASE("a send that the receiver withdraws ends well, at once or when its puts are over") {
    for (const bool at_once : {true, false}) {
        CAPTURE(at_once);
        virtual_time world;
        world.run([](scheduler& on, bool revokes) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            peer.wire().offered.revokes_at_once = revokes;
            peer.to_peer().defers_one_sided = true;
            peer.to_peer().one_sided_steps = 0;
            const auto data = pattern(100);
            std::vector<std::byte> there(100);
            const region open = peer.link().expose(there, access_rights::remote_write);
            auto sending = start(peer.self().send(data, 1));
            co_await peer.hear();
            say(peer, rv::ready, 0, ready_body(0, {open.remote()}));
            say(peer, rv::withdraw, 0);
            co_await turns(5);
            CHECK(sending.done() == revokes);
            CHECK(peer.heard().empty() != revokes);
            peer.to_peer().one_sided_steps = loopback_lane::unlimited;
            co_await sending;
            const heard_message sent = co_await peer.hear();
            CHECK(is(sent, rv::sent));
            CHECK(sent.header.flags == 1);
            co_await turns(3);
            CHECK((there == data) != revokes);
        }(world.on, at_once));
    }
}

TEST_CASE("sends go on however many are under way when room comes back") {
    with_pair<list>([](pair_type& pair) -> task<> {
        // Puts that stall while others wait for a stream's first word: both go on at the same moment.
        const auto data = pattern(100);
        std::deque<started<send_operation<pair_type::endpoint_type::connection_type>>> sends;
        std::vector<std::vector<std::byte>> into(60, std::vector<std::byte>(100));
        std::deque<started<receive_operation<pair_type::endpoint_type::connection_type>>> receives;
        pair.from_a().one_sided_room = 0;
        for (std::size_t n = 0; n < 20; ++n) {
            receives.emplace_back(pair.b.recv(into[n], n));
            sends.emplace_back(pair.a.send(data, n));
        }
        co_await turns(10);
        pair.from_a().room = 0;
        for (std::size_t n = 20; n < 60; ++n) {
            receives.emplace_back(pair.b.recv(into[n], n));
            sends.emplace_back(pair.a.send(data, n));
        }
        co_await turns(3);
        pair.from_a().room = pair.from_a().one_sided_room = loopback_lane::unlimited;
        for (auto& r : receives) co_await r;
        for (auto& s : sends) co_await s;
        for (const auto& one : into) CHECK(one == data);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("put_rendezvous admits any length where there are puts") {
    capabilities link;
    CHECK_FALSE(put_rendezvous<>::admits({10, false}, link));
    link.one_sided = true;
    link.get_bytes = 10;
    CHECK(put_rendezvous<>::admits({0, true}, link));
    CHECK(put_rendezvous<>::admits({std::size_t{1} << 40, false}, link));
    CHECK_FALSE(put_rendezvous<up_to<50>>::admits({51, false}, link));
    CHECK(put_rendezvous<up_to<50>>::parameter() == 50);
}

}  // namespace test_protocol_put_rendezvous
