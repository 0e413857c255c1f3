#include <rdmacoro/protocol/eager.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <initializer_list>
#include <optional>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}
std::vector<std::byte> raw(std::initializer_list<int> bytes) {
    std::vector<std::byte> made;
    for (const int b : bytes) made.push_back(static_cast<std::byte>(b));
    return made;
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

TEST_CASE("an eager message is this frame, and its payload") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = raw({0xca, 0xfe});
        co_await peer.self().send(data, 0x1122334455667788);
        const heard_message m = co_await peer.hear();
        const auto header = m.header.store();
        const auto golden = raw({0x08, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11});
        CHECK(std::equal(header.begin(), header.end(), golden.begin()));
        CHECK(m.payload == data);
        co_await peer.self().send({}, 5);
        const heard_message empty = co_await peer.hear();
        CHECK(empty.payload.empty());
        CHECK(empty.header.tag == 5);
    });
}

TEST_CASE("headers carry the credit of what was received") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> into(100);
        for (int n = 0; n < 3; ++n) {
            auto receiving = start(peer.self().recv(into, 1));
            peer.say(wire_kind::eager, 1, filled(100, n));
            co_await receiving;
        }
        peer.say(wire_kind::eager, 2, filled(100, 0));
        co_await peer.self().probe(2);  // kept: not given back yet
        co_await peer.self().send({}, 1);
        heard_message m = co_await peer.hear();
        CHECK(m.header.credits == 3 * detail::message_cost(100));
        co_await peer.self().recv(into, 2);
        co_await peer.self().send({}, 1);
        m = co_await peer.hear();
        CHECK(m.header.credits == detail::message_cost(100));
        co_await peer.self().send({}, 1);
        m = co_await peer.hear();
        CHECK(m.header.credits == 0);
    });
}

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
        auto& matching = peer.self().connection().box().matching();
        std::vector<std::byte> into(100);
        // Matched at once.
        auto receiving = start(peer.self().recv(into, 1));
        peer.say(wire_kind::eager, 1, filled(100, 1));
        co_await receiving;
        CHECK(into == filled(100, 1));
        CHECK(peer.self().counts().payload_copies == 0);
        // Kept: nobody sees half of it.
        peer.say(wire_kind::eager, 1, filled(100, 2));
        co_await turns(3);
        CHECK(matching.unexpected() == 0);
        // A receive posted in the middle gets it; it was announced to nobody else.
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

TEST_CASE("a link that goes down in the middle of a payload ends the receive, or drops what was kept") {
    for (const bool expected : {true, false}) {
        CAPTURE(expected);
        virtual_time world;
        world.run([](scheduler& on, bool posted) -> task<> {
            scripted_peer peer(on);
            co_await peer.open();
            peer.from_peer().announces_above = 10;
            peer.from_peer().piece = 30;
            std::vector<std::byte> into(100);
            auto receiving = start(peer.self().recv(into, posted ? 1 : 2));
            peer.say(wire_kind::eager, 1, filled(100, 1));
            co_await turns(3);
            peer.self().abort();
            const auto ended = co_await as_result(receiving);
            CHECK(ended.error() == errc::closed);
            CHECK(peer.self().connection().box().store().live() == 0);
        }(world.on, expected));
    }
}

TEST_CASE("more messages than the budget pays for end the link") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[4];
        auto receiving = start(peer.self().recv(into, 1000000));
        const std::size_t count = detail::least_budget / detail::message_cost(1000);
        for (std::size_t n = 0; n < count; ++n) peer.say(wire_kind::eager, n, filled(1000, 0));
        while (peer.self().connection().box().matching().unexpected() < count) co_await yield();
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
        auto& matching = peer.self().connection().box().matching();
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
