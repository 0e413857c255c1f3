#include <rdmacoro/protocol/detail/eager_engine.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

namespace test_protocol_detail_eager_engine {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}
task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}

void with_peer(task<> (*body)(scripted_peer&)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&)) -> task<> {
        mailbox_options least;
        least.unexpected_bytes = 1;
        scripted_peer peer(on, least);
        co_await peer.open();
        co_await run(peer);
    }(world.on, body));
}

}  // namespace

TEST_CASE("a post that finds no room waits and goes on, in order") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.to_peer().held = true;
        peer.to_peer().room = 2;
        const auto data = filled(8, 1);
        auto first = start(peer.self().send(data, 1));
        auto second = start(peer.self().send(data, 2));
        auto third = start(peer.self().send(data, 3));
        auto fourth = start(peer.self().send(data, 4));
        CHECK(second.done());
        CHECK_FALSE(third.done());
        CHECK(peer.self().counts().room_waits == 1);
        peer.to_peer().held = false;
        for (tag_type tag = 1; tag <= 4; ++tag) {
            const heard_message m = co_await peer.hear();
            CHECK(m.header.tag == tag);
        }
        co_await first;
        co_await second;
        co_await third;
        co_await fourth;
        CHECK(peer.self().counts().messages_sent == 4);
    });
}

TEST_CASE("a post that finishes later ends its send then, and a cancel counts it as sent") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.to_peer().held = true;
        peer.to_peer().defers = true;
        auto data = filled(8, 1);
        auto sending = start(peer.self().send(data, 1));
        local_stop_source stop;
        auto other_data = filled(8, 2);
        auto stopped = start(as_result(with_stop(peer.self().send(other_data, 2), stop.get_token())));
        co_await turns(3);
        CHECK_FALSE(sending.done());
        CHECK_FALSE(stopped.done());
        stop.request_stop();
        const auto ended = co_await stopped;
        CHECK(ended.has_value());  // it was with the network already
        other_data = filled(8, 0);
        peer.to_peer().held = false;
        co_await sending;
        heard_message m = co_await peer.hear();
        CHECK(m.payload == filled(8, 1));
        m = co_await peer.hear();
        CHECK(m.payload == filled(8, 2));
    });
}

TEST_CASE("a payload that comes in parts goes straight to its place, or is kept whole") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.from_peer().announces_above = 10;
        peer.from_peer().piece = 30;
        auto& matching = peer.self().connection().mailbox().matching();
        std::vector<std::byte> into(100);
        // Matched at once.
        auto receiving = start(peer.self().recv(into, 1));
        peer.say(wire_kind::eager, 1, filled(100, 1));
        co_await receiving;
        CHECK(into == filled(100, 1));
        CHECK(peer.self().counts().payload_copies == 0);
        // Kept: half of it is not visible.
        peer.say(wire_kind::eager, 1, filled(100, 2));
        co_await turns(3);
        CHECK(matching.unexpected() == 0);
        // A receive posted in the middle gets it; it was announced to no other receive.
        auto late = start(peer.self().recv(into, 1));
        co_await late;
        CHECK(into == filled(100, 2));
        // Kept and then received.
        peer.say(wire_kind::eager, 1, filled(100, 3));
        co_await peer.self().probe(1);
        co_await peer.self().recv(into, 1);
        CHECK(into == filled(100, 3));
        // Lent.
        auto lent = start(peer.self().recv_lent(1));
        peer.say(wire_kind::eager, 1, filled(100, 4));
        const message whole = co_await lent;
        CHECK(whole.size() == 100);
        CHECK(whole.bytes()[99] == std::byte{4});
        // Too short: consumed.
        std::byte small[10];
        auto short_one = start(peer.self().recv(small, 1));
        peer.say(wire_kind::eager, 1, filled(100, 5));
        const auto ended = co_await as_result(short_one);
        CHECK(ended.error() == errc::truncated);
        CHECK(ended.info() == 100);
        // Canceled in the middle: the rest goes nowhere.
        local_stop_source stop;
        auto stopped = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        peer.say(wire_kind::eager, 1, filled(100, 6));
        co_await turns(3);
        stop.request_stop();
        const auto canceled = co_await stopped;
        CHECK(canceled.error() == errc::canceled);
        into = filled(100, 0x11);
        auto next = start(peer.self().recv_lent(2));
        peer.say(wire_kind::eager, 2, filled(5, 7));
        co_await next;
        CHECK(into == filled(100, 0x11));
    });
}

TEST_CASE("a link that goes down in the middle of a payload ends the receive or keeps the message's place") {
    for (const bool expected : {true, false}) {
        CAPTURE(expected);
        virtual_time world;
        world.run([](scheduler& on, bool posted) -> task<> {
            scripted_peer peer(on);
            co_await peer.open();
            peer.from_peer().announces_above = 10;
            peer.from_peer().piece = 1;
            std::vector<std::byte> into(100);
            auto receiving = start(peer.self().recv(into, posted ? 1 : 2));
            peer.say(wire_kind::eager, 1, filled(100, 1));
            co_await turns(30);
            peer.self().abort();
            const auto ended = co_await as_result(receiving);
            CHECK(ended.error() == errc::closed);
            auto& stored = peer.self().connection().mailbox();
            CHECK(stored.matching().unexpected() == (posted ? 0 : 1));
            const auto met = co_await as_result(peer.self().recv(into, 1));
            CHECK(met.error() == errc::closed);
            CHECK(stored.store().live() == 0);
        }(world.on, expected));
    }
}

TEST_CASE("more messages than the budget pays for end the link") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[4];
        auto receiving = start(peer.self().recv(into, 1000000));
        const std::size_t count = detail::least_budget / detail::message_cost(1000);
        for (std::size_t n = 0; n < count; ++n) peer.say(wire_kind::eager, n, filled(1000, 0));
        while (peer.self().connection().mailbox().matching().unexpected() < count) co_await yield();
        CHECK_FALSE(receiving.done());
        peer.say(wire_kind::eager, 5, filled(1000, 0));
        const auto ended = co_await as_result(receiving);
        CHECK(ended.error() == errc::protocol_violation);
        // What was kept before can still be received.
        std::vector<std::byte> kept(1000);
        for (std::size_t n = 0; n < count; ++n) co_await peer.self().recv(kept, n);
    });
}

TEST_CASE("a message beyond the budget that a receive waits for ends that receive, too") {
    with_peer([](scripted_peer& peer) -> task<> {
        const std::size_t count = detail::least_budget / detail::message_cost(1000);
        for (std::size_t n = 0; n < count; ++n) peer.say(wire_kind::eager, n, filled(1000, 0));
        auto& matching = peer.self().connection().mailbox().matching();
        while (matching.unexpected() < count) co_await yield();
        std::vector<std::byte> into(1000);
        auto receiving = start(peer.self().recv(into, 1'000'000));
        peer.say(wire_kind::eager, 1'000'000, filled(1000, 1));
        const auto ended = co_await as_result(receiving);
        CHECK(ended.error() == errc::protocol_violation);
        CHECK(matching.posted() == 0);
    });
}

TEST_CASE("a send on a link that is broken and does not say so yet fails") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.to_peer().broken = true;
        const auto data = filled(8, 0);
        const auto sent = co_await as_result(peer.self().send(data));
        CHECK(sent.error() == errc::peer_lost);
        const auto synchronous = co_await as_result(peer.self().ssend(data));
        CHECK(synchronous.error() == errc::peer_lost);
    });
}

}  // namespace test_protocol_detail_eager_engine
