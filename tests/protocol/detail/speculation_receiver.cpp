#include <rdmacoro/protocol/detail/speculation_receiver.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/speculation.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_detail_speculation_receiver {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::speculation;

TEST_CASE("an announced receive is met by three frames: announce, claim and finish") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> into(800);
        auto receiving = start(peer.self().recv(into, 0x1122334455667788));
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x0f, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}));
        const auto where = pieces_of(said, 16);
        REQUIRE(where.size() == 1);
        CHECK(where[0].address == reinterpret_cast<std::uint64_t>(into.data()));
        CHECK(where[0].length == 800);
        CHECK(said.payload == announce_body(0, 0, 0, {where[0]}));
        say(peer, sp::claim, 0, length(700));
        recording_completion done;
        CHECK(peer.link().put(data, where[0].part(0, 700), done) == post_result::done);
        co_await turns(5);
        CHECK_FALSE(receiving.done());
        say(peer, sp::finish, 0);
        const received got = co_await receiving;
        CHECK(got.bytes == 700);
        CHECK(got.tag == 0x1122334455667788);
        CHECK(std::equal(data.begin(), data.end(), into.begin()));
        CHECK(peer.heard().empty());
        CHECK(peer.self().counts().announced == 1);
        CHECK(peer.self().counts().announcements_met == 1);
        CHECK(peer.self().counts().payload_copies == 0);
        // The memory is closed to the peer; the number and the count of messages go on.
        CHECK(peer.link().put(data, where[0].part(0, 700), done) == post_result::posted);
        while (done.calls == 0) co_await yield();
        CHECK(done.outcome == errc::bad_key);
        auto next = start(peer.self().recv(into, 2));
        const heard_message second = co_await peer.hear();
        CHECK(second.payload == announce_body(0, 0, 1, {pieces_of(second, 16)[0]}));
        say(peer, rv::request, 2, request_body(0, 0));
        co_await next;
    });
}

TEST_CASE("a canceled receive says withdraw, and ends with the answer") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        std::vector<std::byte> into(800);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        const remote_region where = pieces_of(co_await peer.hear(), 16)[0];
        check_stage("recv", "posted, no message has met it", next_actor::peer_send);
        peer.to_peer().room = 0;
        stop.request_stop();
        co_await turns(3);
        check_stage("recv", "canceled, no room to say so", next_actor::device);
        peer.to_peer().room = loopback_lane::unlimited;
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        co_await turns(5);
        CHECK_FALSE(receiving.done());
        check_stage("recv", "canceled, the peer has not answered", next_actor::peer_poll);
        CHECK(scheduler::current()->describe().operations().size() == 1);
        CHECK(peer.self().counts().announcements_withdrawn == 0);
        say(peer, sp::withdrawn, 0);
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        CHECK(peer.self().counts().announcements_withdrawn == 1);
        recording_completion done;
        CHECK(peer.link().put(into, where, done) == post_result::posted);
        co_await turns(2);
        CHECK(done.outcome == errc::bad_key);
        // The number is free again.
        auto next = start(peer.self().recv(into, 2));
        auto answer_1 = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(answer_1.payload.data()) == 0);
        say(peer, rv::request, 2, request_body(0, 0));
        co_await next;
    });
}

TEST_CASE("a receive that was claimed and is canceled says revoke; its buffer is its own at once") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(800);
        std::vector<std::byte> into(800);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        const remote_region where = pieces_of(co_await peer.hear(), 16)[0];
        say(peer, sp::claim, 0, length(800));
        co_await turns(3);
        stop.request_stop();
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        std::fill(into.begin(), into.end(), std::byte{0xaa});
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        recording_completion done;
        CHECK(peer.link().put(data, where, done) == post_result::posted);
        co_await turns(2);
        CHECK(done.outcome == errc::bad_key);
        CHECK(all_are(into, 0xaa));
        // The number is free when the peer has said finish, of whatever kind.
        auto next = start(peer.self().recv(into, 2));
        auto answer_2 = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(answer_2.payload.data()) == 1);
        say(peer, sp::finish, 0, {}, 1);
        say(peer, rv::request, 2, request_body(0, 0));
        co_await next;
        CHECK(peer.self().is_open());
    });
}

TEST_CASE("a claimed receive that is canceled ends when the sender is no longer in the middle of its put") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        std::vector<std::byte> into(800);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        co_await peer.hear();
        say(peer, sp::claim, 0, length(800));
        co_await turns(3);
        peer.from_peer().touches = true;
        check_stage("recv", "the peer puts it", next_actor::peer_poll);
        peer.to_peer().room = 0;
        stop.request_stop();
        co_await turns(3);
        check_stage("recv", "canceled, no room to say so", next_actor::device);
        peer.to_peer().room = loopback_lane::unlimited;
        const heard_message said = co_await peer.hear();
        CHECK(is(said, sp::revoke));
        co_await turns(20);
        CHECK_FALSE(receiving.done());
        check_stage("recv", "canceled, the peer has not answered", next_actor::peer_poll);
        peer.from_peer().touches = false;
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        say(peer, sp::finish, 0, {}, 1);
        auto next = start(peer.self().recv(into, 2));
        co_await peer.hear();
        say(peer, rv::request, 2, request_body(0, 0));
        co_await next;
        CHECK(peer.self().is_open());
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

TEST_CASE("claims, finishes and answers of what was never asked for end the link") {
    struct words {
        sp kind;
        tag_type number;
        std::uint64_t bytes;  ///< of the claim; others have no payload
        std::uint8_t flags;
    };
    using script = std::vector<words>;
    const script scripts[] = {
        {{sp::claim, 1, 10, 0}},                         // never announced
        {{sp::claim, ~tag_type{0}, 10, 0}},              //
        {{sp::claim, 0, 101, 0}},                        // longer than the buffer
        {{sp::claim, 0, 0, 0}},                          //
        {{sp::claim, 0, ~std::uint64_t{0}, 0}},          //
        {{sp::claim, 0, 10, 0}, {sp::claim, 0, 10, 0}},  // twice
        {{sp::finish, 0, 0, 0}},                         // never started
        {{sp::finish, 5, 0, 0}},                         //
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 1}},  // not revoked
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 3}},  //
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 0}, {sp::finish, 0, 0, 0}},
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 0}, {sp::claim, 0, 10, 0}},
        {{sp::withdrawn, 0, 0, 0}},            // not asked
        {{sp::withdrawn, 77, 0, 0}},           //
        {{sp::withdraw, 0, 0, 0}},             // never announced by the peer
        {{sp::withdraw, ~tag_type{0}, 0, 0}},  //
        {{sp::revoke, 0, 0, 0}},               //
        {{sp::revoke, 63, 0, 0}},              //
    };
    for (const script& each : scripts) {
        CAPTURE(&each - scripts);
        virtual_time world;
        world.run([](scheduler& on, const script& s) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            std::vector<std::byte> memory(300, std::byte{0x55});
            auto receiving = start(as_result(peer.self().recv(std::span(memory).subspan(100, 100), 1)));
            co_await turns(3);
            for (const words& w : s)
                say(peer, w.kind, w.number, w.kind == sp::claim ? length(w.bytes) : std::vector<std::byte>{},
                    w.flags);
            co_await ends(peer);
            static_cast<void>(co_await receiving);
            CHECK(all_are(memory, 0x55));
        }(world.on, each));
    }
}

}  // namespace test_protocol_detail_speculation_receiver
