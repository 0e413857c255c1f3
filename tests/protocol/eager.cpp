#include <rdmacoro/protocol/eager.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <initializer_list>

namespace test_protocol_eager {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
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

}  // namespace test_protocol_eager
