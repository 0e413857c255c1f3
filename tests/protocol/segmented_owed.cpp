// What segmented owes the peer when there is no room, against what the connection sends meanwhile.

#include <rdmacoro/protocol/segmented.hpp>

#include "support/catch.hpp"
#include "support/recording_sink.hpp"
#include "support/scripted_peer.hpp"

#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}
bool is(const heard_message& m, wire_kind kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }
}  // namespace

TEST_CASE("an answer to the sender that found no room is sent before goodbye") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open(1u << 20);
        const auto data = pattern(10);
        std::vector<std::byte> into(10);
        auto receiving = start(peer.self().recv(into, 1));
        peer.to_peer().room = 0;
        peer.say(wire_kind::announce, 1,
                 announcement(0, 1, 10));  // synchronous: its sender waits for `proceed`
        peer.say(wire_kind::piece, 0, data);
        co_await receiving;
        CHECK(into == data);
        auto closing = start(peer.self().close());
        co_await turns(5);
        CHECK(peer.heard().empty());
        peer.to_peer().room = 1;  // for one message; the peer answers goodbye before there is more
        const heard_message first = co_await peer.hear();
        CHECK(is(first, wire_kind::proceed));
        peer.to_peer().room = loopback_lane::unlimited;
        while (peer.heard().empty() || !is(peer.heard().front(), wire_kind::goodbye)) {
            if (!peer.heard().empty()) peer.heard().pop_front();
            co_await yield();
        }
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
    }(world.on));
}
