#include <rdmacoro/protocol/detail/speculation_sender.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/named_in_sequence.hpp"
#include "support/speculation.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_detail_speculation_sender {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::speculation;

TEST_CASE("a send that meets an announcement claims it, puts and says finish") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> there(800);
        const region open = peer.link().expose(there, access_rights::remote_write);
        for (std::uint32_t n = 0; n < 3; ++n)  // numbers are taken in order
            say(peer, sp::announce, 8, announce_body(n, n, 0, {open.remote()}));
        say(peer, sp::announce, 9,
            announce_body(3, 0, 0, {open.remote().part(0, 300), open.remote().part(300, 500)}));
        co_await turns(6);
        auto sending = start(peer.self().send(data, 9));
        CHECK(sending.done());
        co_await sending;
        CHECK(std::equal(data.begin(), data.end(), there.begin()));
        CHECK(all_are(std::span(there).subspan(700), 0));
        heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x10, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload == raw({0xbc, 0x02, 0, 0, 0, 0, 0, 0}));
        said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x11, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        CHECK(peer.self().counts().announcements_used == 1);
        CHECK(peer.self().counts().speculative_sent == 1);
        // The number may be used again, and a send may be synchronous.
        say(peer, sp::announce, 9, announce_body(3, 0, 1, {open.remote()}));
        co_await peer.self().ssend(data, 9);
        CHECK(peer.self().counts().announcements_used == 2);
    });
}

TEST_CASE("a put to an announced receive waits for room, and finish behind it") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> there(700);
        const region open = peer.link().expose(there, access_rights::remote_write);
        say(peer, sp::announce, 9, announce_body(0, 0, 0, {open.remote()}));
        co_await turns(3);
        peer.to_peer().defers_one_sided = true;
        peer.to_peer().one_sided_room = 0;
        auto sending = start(peer.self().send(data, 9));
        const heard_message claim = co_await peer.hear();
        CHECK(is(claim, sp::claim));
        check_stage("send", "no room for the next put", next_actor::device);
        peer.to_peer().one_sided_steps = 0;
        peer.to_peer().one_sided_room = loopback_lane::unlimited;
        co_await turns(3);
        check_stage("send", "is being put to its receive", next_actor::device);
        peer.to_peer().room = 0;
        peer.to_peer().one_sided_steps = loopback_lane::unlimited;
        co_await turns(3);
        CHECK(there == data);
        CHECK_FALSE(sending.done());
        CHECK(peer.heard().empty());
        check_stage("send", "all is put, no room to say so", next_actor::device);
        peer.to_peer().room = loopback_lane::unlimited;
        co_await sending;
        const heard_message finish = co_await peer.hear();
        CHECK(is(finish, sp::finish));
    });
}

TEST_CASE("withdraw is answered with withdrawn, revoke with finish") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> there(700);
        region open = peer.link().expose(there, access_rights::remote_write);
        say(peer, sp::announce, 1, announce_body(0, 0, 0, {open.remote()}));
        say(peer, sp::withdraw, 0);
        heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        // It is used no more.
        auto sending = start(peer.self().send(data, 1));
        auto answer_3 = co_await peer.hear();
        CHECK(is(answer_3, rv::request));
        say(peer, rv::received, 0);
        co_await sending;
        // Claimed, refused and then revoked: the memory was taken back in between.
        say(peer, sp::announce, 1, announce_body(0, 0, 1, {open.remote()}));
        co_await turns(3);
        open.reset();
        auto second = start(peer.self().send(data, 1));
        auto answer_4 = co_await peer.hear();
        CHECK(is(answer_4, sp::claim));
        co_await turns(5);
        CHECK_FALSE(second.done());
        say(peer, sp::revoke, 0);
        co_await second;
        said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(all_are(there, 0));
        CHECK(peer.self().is_open());
    });
}

TEST_CASE("a claimed send that is canceled says so, and the receive ends with peer_canceled") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(5000);
        std::vector<std::byte> into(5000);
        pair.from_a().defers_one_sided = true;
        auto receiving = start(as_result(pair.b.recv(into, 1)));
        co_await turns(5);
        pair.from_a().held = true;
        local_stop_source stop;
        auto sending = start(as_result(with_stop(pair.a.send(data, 1), stop.get_token())));
        co_await turns(5);
        CHECK_FALSE(sending.done());
        pair.from_a().room = 0;
        stop.request_stop();
        co_await turns(3);
        CHECK_FALSE(sending.done());
        check_stage("send", "canceled, no room to say so", next_actor::device);
        pair.from_a().room = loopback_lane::unlimited;
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::canceled);
        pair.from_a().held = false;
        const auto other = co_await receiving;
        CHECK(other.error() == errc::peer_canceled);
        co_await turns(5);
        CHECK(all_are(into, 0));
        CHECK(pair.at_rest());
        // Numbers are free again.
        pair.from_a().defers_one_sided = false;
        auto again = start(pair.b.recv(into, 1));
        co_await turns(5);
        co_await pair.a.send(data, 1);
        co_await again;
        CHECK(into == data);
    });
}

namespace {

/// The link has ended as it should, and quickly.
template <class Peer>
task<> ends(Peer& peer, std::error_code why = make_error_code(errc::protocol_violation)) {
    co_await turns(5);
    CHECK_FALSE(peer.self().is_open());
    CHECK(peer.self().connection().reason() == why);
}

}  // namespace

TEST_CASE("announcements that cannot be end the link") {
    struct wrong {
        std::uint32_t number;
        std::uint64_t seen;
        std::uint64_t bytes;
        std::uint32_t pieces;
    };
    for (const wrong each : {wrong{64, 0, 100, 1}, wrong{0xffffffff, 0, 100, 1}, wrong{0, 1, 100, 1},
                             wrong{0, ~std::uint64_t{0}, 100, 1}, wrong{0, 0, 0, 1}, wrong{0, 0, 100, 0},
                             wrong{0, 0, std::uint64_t{1} << 63, 1}, wrong{0, 0, std::uint64_t{1} << 63, 2},
                             wrong{0, 0, 100, 17}}) {
        virtual_time world;
        world.run([](scheduler& on, wrong w) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            auto body = announce_body(w.number, 0, w.seen, {});
            for (std::uint32_t n = 0; n < w.pieces; ++n) append(body, {remote_region{4096, w.bytes, 1}});
            say(peer, sp::announce, 1, body);
            co_await ends(peer);
        }(world.on, each));
    }
    for (const std::size_t the_bytes : {0u, 15u, 17u, 39u, 41u}) {
        virtual_time world;
        world.run([](scheduler& on, std::size_t bytes) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            auto body = announce_body(0, 0, 0, {remote_region{4096, 100, 1}, remote_region{4096, 100, 1}});
            body.resize(bytes);
            say(peer, sp::announce, 1, body);
            co_await ends(peer);
        }(world.on, the_bytes));
    }
}

TEST_CASE("a receiver takes its numbers in order, and one beyond the next ends the link and makes no place") {
    check_named_in_sequence<peer_type>(detail::most_announcements, [](peer_type& p, std::uint32_t id) {
        say(p, sp::announce, 1, announce_body(id, id, 0, {remote_region{4096, 100, 1}}));
    });
}

TEST_CASE("a number that is in use, and an announcement that has seen less than the last, end the link") {
    for (int the_what = 0; the_what < 4; ++the_what) {
        CAPTURE(the_what);
        virtual_time world;
        world.run([](scheduler& on, int what) -> task<> {
            peer_type peer(on);
            co_await peer.open(1u << 20);
            std::vector<std::byte> there(100);
            const region open = peer.link().expose(there, access_rights::remote_write);
            auto first = start(as_result(peer.self().send({}, 3)));
            co_await turns(3);
            say(peer, rv::received, 0);
            auto answer_24 = co_await first;
            CHECK(answer_24);
            say(peer, sp::announce, 1, announce_body(0, 0, 1, {open.remote()}));
            std::optional<started<task<result<void>>>> sending;
            if (what >= 2) {  // claimed, and being put
                co_await turns(3);
                peer.to_peer().defers_one_sided = true;
                peer.to_peer().one_sided_steps = 0;
                sending.emplace([](peer_type& p, std::span<const std::byte> from) -> task<result<void>> {
                    co_return co_await as_result(p.self().send(from, 1));
                }(peer, std::span(there)));
            }
            say(peer, sp::announce, 2,
                announce_body(what == 1 ? 1 : 0, 0, what == 1 ? 0 : 1, {open.remote()}));
            co_await ends(peer);
            if (sending) {
                auto answer_25 = co_await *sending;
                CHECK_FALSE(answer_25);
            }
        }(world.on, the_what));
    }
}

TEST_CASE("an announcement of memory that is not the peer's is refused, and the link ends a second later") {
    virtual_time world;
    world.run([](scheduler& on, virtual_time& w) -> task<> {
        peer_type peer(on);
        co_await peer.open();
        std::vector<std::byte> there(100);
        const auto data = pattern(200);
        const region open = peer.link().expose(std::span(there).first(50), access_rights::remote_write);
        const remote_region honest = open.remote();
        say(peer, sp::announce, 1, announce_body(0, 0, 0, {remote_region{honest.address, 100, honest.key}}));
        co_await turns(3);
        const duration before = w.now();
        auto sending = start(as_result(peer.self().send(std::span(data).first(100), 1)));
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::protocol_violation);
        CHECK(w.now() - before == std::chrono::seconds(1));
        CHECK(all_are(there, 0));
        CHECK_FALSE(peer.self().is_open());
    }(world.on, world));
}

TEST_CASE("each refused put has its own second") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        peer_type peer(on);
        co_await peer.open();
        std::vector<std::byte> there(100);
        const auto data = pattern(100);
        for (const std::uint32_t number : {0u, 1u}) {
            region open = peer.link().expose(there, access_rights::remote_write);
            say(peer, sp::announce, 1, announce_body(number, 0, number, {open.remote()}));
            co_await turns(3);
            open.reset();
            auto sending = start(as_result(peer.self().send(data, 1)));
            co_await sleep_for(std::chrono::milliseconds(700));
            CHECK_FALSE(sending.done());
            check_stage("send", "the peer closed its memory and has not said why", next_actor::peer_poll);
            peer.to_peer().room = 0;
            say(peer, sp::revoke, number);
            co_await turns(3);
            check_stage("send", "the peer takes no more, no room to answer", next_actor::device);
            peer.to_peer().room = loopback_lane::unlimited;
            auto answer_26 = co_await sending;
            CHECK(answer_26);
        }
        CHECK(peer.self().is_open());
        CHECK(all_are(there, 0));
    }(world.on));
}

TEST_CASE("an announcement is withdrawn once, and a claimed one revoked once") {
    for (int the_what = 0; the_what < 5; ++the_what) {
        CAPTURE(the_what);
        virtual_time world;
        world.run([](scheduler& on, int what) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            std::vector<std::byte> there(100);
            const auto data = pattern(100);
            const region open = peer.link().expose(there, access_rights::remote_write);
            say(peer, sp::announce, 1, announce_body(0, 0, 0, {open.remote()}));
            co_await turns(3);
            if (what == 0) {  // answered, and asked again
                say(peer, sp::withdraw, 0);
                co_await turns(3);
                say(peer, sp::withdraw, 0);
            } else if (what == 1) {  // revoked before it was claimed
                say(peer, sp::revoke, 0);
            } else {
                co_await peer.self().send(data, 1);
                say(peer, sp::revoke, 0);    // crosses finish: harmless
                say(peer, sp::withdraw, 0);  // crosses the claim: harmless
                co_await turns(3);
                CHECK(peer.self().is_open());
                if (what == 2) say(peer, sp::revoke, 0);
                if (what == 3) say(peer, sp::withdraw, 0);
                if (what == 4) say(peer, sp::withdraw, 0, length(1));
            }
            co_await ends(peer);
        }(world.on, the_what));
    }
}

}  // namespace test_protocol_detail_speculation_sender
