#include <rdmacoro/protocol/connection.hpp>

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>

#include <unistd.h>

namespace test_protocol_connection {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}
bool is(const heard_message& m, wire_kind kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }
mailbox_options little() {
    mailbox_options o;
    o.unexpected_bytes = 1;
    return o;
}

void with_peer(task<> (*body)(scripted_peer&), bool opened = true) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&), bool open) -> task<> {
        scripted_peer peer(on, little());
        if (open) co_await peer.open();
        co_await run(peer);
    }(world.on, body, opened));
}

/// The poller of a receive, where nothing can come.
struct no_network {
    static constexpr bool speculates = false;
    detail::mailbox_base* mailbox_;
    detail::mailbox_base& mailbox() noexcept { return *mailbox_; }
    std::error_code why_not_from(peer_id) noexcept { return {}; }
    void poll_for(peer_id) noexcept {}
};

}  // namespace

// ---- leaving messages in the network for a moment

TEST_CASE("a message is left in the network while coroutines wait for their turn, but not for long") {
    with_peer([](scripted_peer& peer) -> task<> {
        for (const bool busy : {true, false}) {
            CAPTURE(busy);
            bool stop = false;
            int turns_in_the_network = 0;
            task_group others;
            if (busy) {
                others.spawn([&]() -> task<> {
                    while (!stop) {
                        if (!peer.from_peer().packets.empty()) ++turns_in_the_network;
                        co_await yield();
                    }
                });
            }
            co_await yield();
            const std::uint64_t unexpected = peer.self().counts().unexpected;
            peer.say(wire_kind::eager, 1, filled(8, 1));
            co_await peer.self().probe(1);
            CHECK(peer.self().counts().unexpected == unexpected + 1);
            CHECK(turns_in_the_network >= (busy ? 4 : 0));
            CHECK(turns_in_the_network <= 16);
            std::byte into[8];
            co_await peer.self().recv(into, 1);
            stop = true;
            co_await others.join();
        }
    });
}

// ---- sends that wait

TEST_CASE("thousands of sends that wait for credit begin in order, a few in each turn, and a goodbye waits "
          "for them") {
    scheduler on{idle::yield{}};  // a clock that moves on
    on.run([](scheduler& own) -> task<> {
        scripted_peer peer(own, little());
        co_await peer.open();
        using sending = decltype(start(peer.self().send(const_buffers{}, 1)));
        std::deque<sending> sends;
        const auto send = [&] { sends.emplace_back(peer.self().send(const_buffers{}, sends.size())); };
        while (peer.self().counts().credit_waits == 0) send();
        const std::size_t all = sends.size() + 1000;
        while (sends.size() < all) send();
        co_await yield();
        const auto sent = [&] { return peer.self().counts().messages_sent; };
        peer.say(wire_kind::credit, 0, {}, detail::least_budget / 2);
        peer.say(wire_kind::credit, 0, {}, detail::least_budget / 2);
        auto closing = start(peer.self().close());
        std::uint64_t most = 0;
        for (int turns = 0; turns < 1000 && sent() < all; ++turns) {
            const std::uint64_t before = sent();
            co_await yield();
            most = std::max(most, sent() - before);
        }
        CHECK(sent() == all);
        CHECK(most <= 200);
        tag_type next = 0;
        bool in_order = true;
        heard_message m = co_await peer.hear();
        for (; !is(m, wire_kind::goodbye); m = co_await peer.hear()) {
            if (is(m, wire_kind::eager)) in_order = m.header.tag == next++ && in_order;
        }
        CHECK(in_order);
        CHECK(next == all);
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
        for (sending& s : sends) co_await s;
    }(on));
}

// ---- moving to another mailbox

TEST_CASE("a connection that moves takes its waiting messages along, and receives posted there meet them") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on, little());
        co_await peer.open();
        for (tag_type tag = 1; tag <= 3; ++tag)
            peer.say(wire_kind::eager, tag, filled(8, static_cast<int>(tag)));
        peer.say(wire_kind::announce, 4, announcement(0, 1, 8));
        peer.say(wire_kind::piece, 0, filled(8, 4));
        co_await peer.self().probe(4);
        auto& connection = peer.self().connection();
        detail::mailbox_base& before = connection.mailbox();
        {
            detail::mailbox_base box(on, little(), true);
            REQUIRE(box.matching().add_source(9));
            std::byte second[8];
            std::byte fourth[8];
            no_network poll{&box};
            auto wants_second = start(receive_operation<no_network>(poll, second, 2, any_source));
            auto wants_fourth = start(receive_operation<no_network>(poll, fourth, 4, 9));
            connection.move_to(box, 9);
            CHECK(before.matching().unexpected() == 0);
            CHECK(box.matching().unexpected() == 2);
            const received two = co_await wants_second;
            CHECK(two.source == 9);
            CHECK(second[0] == std::byte{2});
            const received four = co_await wants_fourth;
            CHECK(four.bytes == 8);
            CHECK(fourth[7] == std::byte{4});
            const heard_message proceed = co_await peer.hear();
            CHECK(is(proceed, wire_kind::proceed));
            const received first = co_await receive_operation<no_network>(poll, second, any_tag, any_source);
            CHECK(first.tag == 1);
            // New messages come to the new mailbox.
            peer.say(wire_kind::eager, 7, filled(8, 7));
            while (box.matching().unexpected() < 2) co_await yield();
            connection.move_to(before, 0);
        }
        CHECK(before.matching().unexpected() == 2);
        std::byte into[8];
        co_await peer.self().recv(into, 7);
    }(world.on));
}

TEST_CASE(
    "a receive looks at its link at once, unless other coroutines are to run before all links are polled") {
    scheduler on{idle::yield{}};
    on.run([]() -> task<> {
        auto listening = co_await listen<shm>("shm://looks-" + std::to_string(::getpid()));
        auto near = co_await connect<shm>(listening.address());
        auto far = co_await listening.accept();
        // What was sent is in the ring.
        co_await near.send({}, 1);
        auto alone = start(far.recv({}, 1));
        CHECK(alone.done());
        co_await alone;
        bool at_once = true;
        task_group two;
        two.spawn([&]() -> task<> {
            co_await yield();
            co_await near.send({}, 1);
            auto receiving = start(far.recv({}, 1));
            at_once = receiving.done();
            co_await receiving;
        });
        two.spawn([]() -> task<> { co_await yield(); });
        co_await two.join();
        CHECK_FALSE(at_once);
    }());
}

}  // namespace test_protocol_connection
