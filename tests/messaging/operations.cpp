#include <rdmacoro/messaging/operations.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <type_traits>

namespace test_messaging_operations {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
using connection = typename endpoint<loopback>::connection_type;
}

// Operations are values: they move until they begin, and are awaited for what they say.
static_assert(std::is_nothrow_move_constructible_v<send_operation<connection>>);
static_assert(std::is_nothrow_move_constructible_v<receive_operation<connection>>);
static_assert(std::is_nothrow_move_constructible_v<lent_receive_operation<connection>>);
static_assert(std::is_nothrow_move_constructible_v<probe_operation<connection>>);
static_assert(std::is_nothrow_move_constructible_v<close_operation>);
static_assert(std::is_same_v<await_result_t<send_operation<connection>>, void>);
static_assert(std::is_same_v<await_result_t<receive_operation<connection>>, received>);
static_assert(std::is_same_v<await_result_t<lent_receive_operation<connection>>, message>);
static_assert(std::is_same_v<await_result_t<probe_operation<connection>>, received>);
static_assert(!std::is_copy_constructible_v<receive_operation<connection>>);

namespace {
void with_peer(task<> (*body)(scripted_peer&)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&)) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        co_await run(peer);
    }(world.on, body));
}
}  // namespace

TEST_CASE("an operation that is made and not awaited does nothing") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[4];
        {
            auto never_sent = peer.self().send(into, 1);
            auto never_received = peer.self().recv(into, 1);
            auto never_probed = peer.self().probe(1);
            auto never_closed = peer.self().close();
            static_cast<void>(never_sent);
            static_cast<void>(never_received);
            static_cast<void>(never_probed);
            static_cast<void>(never_closed);
        }
        peer.say(wire_kind::eager, 1);
        const received seen = co_await peer.self().probe(1);
        CHECK(seen.bytes == 0);
        CHECK(peer.heard().empty());
        CHECK(peer.self().is_open());
    });
}

TEST_CASE("an operation made before may be moved and awaited later") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        auto made = peer.self().recv(into, 1);
        auto lent = peer.self().recv_lent(2);
        auto sent = peer.self().send(into, 3);
        auto moved = std::move(made);
        auto moved_lent = std::move(lent);
        auto moved_send = std::move(sent);
        const std::vector<std::byte> data(8, std::byte{9});
        peer.say(wire_kind::eager, 1, data);
        peer.say(wire_kind::eager, 2, data);
        const received got = co_await moved;
        CHECK(got.bytes == 8);
        CHECK(into[7] == std::byte{9});
        const message m = co_await moved_lent;
        CHECK(m.size() == 8);
        co_await moved_send;
        const heard_message heard = co_await peer.hear();
        CHECK(heard.payload == data);
    });
}

TEST_CASE("what is there already is received without suspending, and polls the link once") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        peer.say(wire_kind::eager, 1);
        peer.say(wire_kind::eager, 1);
        auto first = peer.self().recv(into, 1);
        first.begin();
        CHECK(first.done());
        CHECK(peer.from_peer().packets.size() == 1);
        co_await first;
        auto probing = peer.self().probe(1);
        probing.begin();
        CHECK(probing.done());
        co_await probing;
        co_await peer.self().recv(into, 1);
        auto waiting = peer.self().recv(into, 1);
        waiting.begin();
        CHECK_FALSE(waiting.done());
        peer.say(wire_kind::eager, 1);
        co_await waiting;
    });
}

}  // namespace test_messaging_operations
