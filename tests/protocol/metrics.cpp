#include <rdmacoro/protocol/metrics.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

namespace test_protocol_metrics {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("metrics count messages, bytes, copies and pieces") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        const metrics& counts = peer.self().counts();
        const std::vector<std::byte> small(10);
        const std::vector<std::byte> large(30000);
        const std::vector<std::byte> middle(100);
        co_await peer.self().send(small, 1);
        co_await peer.self().send(large, 2);
        CHECK(counts.messages_sent == 2);
        CHECK(counts.bytes_sent == 30010);
        CHECK(counts.eager_sent == 1);
        CHECK(counts.segmented_sent == 1);
        CHECK(counts.segments_sent == 2);

        std::vector<std::byte> into(10);
        auto receiving = start(peer.self().recv(into, 1));
        peer.say(wire_kind::eager, 1, small);
        co_await receiving;
        CHECK(counts.messages_received == 1);
        CHECK(counts.bytes_received == 10);
        CHECK(counts.payload_copies == 1);
        CHECK(counts.unexpected == 0);

        peer.say(wire_kind::eager, 2, small);
        co_await peer.self().probe(2);
        CHECK(counts.unexpected == 1);
        co_await peer.self().recv(into, 2);
        CHECK(counts.payload_copies == 3);
        CHECK(counts.bytes_copied == 30);

        auto lending = start(peer.self().recv_lent(3));
        peer.say(wire_kind::eager, 3, middle);
        const message lent = co_await lending;
        CHECK(counts.lent == 1);
        CHECK(counts.payload_copies == 3);
        CHECK(counts.messages_received == 3);

        auto short_one = start(peer.self().recv_lent(4));
        peer.say(wire_kind::eager, 4, small);
        const message copied = co_await short_one;
        CHECK(copied.size() == 10);
        CHECK(counts.lent == 1);
        CHECK(counts.payload_copies == 4);
    }(world.on));
}

}  // namespace test_protocol_metrics
