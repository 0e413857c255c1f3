// The messages that segmented owes the peer when there is no room, against those that the connection sends meanwhile.

#include <rdmacoro/protocol/segmented.hpp>

#include "support/catch.hpp"
#include "support/recording_sink.hpp"
#include "support/scripted_peer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace test_protocol_segmented_owed {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}
using started_receive = started<receive_operation<scripted_peer::endpoint_type::connection_type>>;
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

TEST_CASE("the link ends while several answers that found no room are being sent") {
    for (const std::size_t sent : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
        CAPTURE(sent);
        virtual_time world;
        world.run([](scheduler& on, std::size_t before_the_end) -> task<> {
            scripted_peer peer(on);
            co_await peer.open(1u << 20);
            constexpr std::size_t streams = 4;
            std::vector<std::byte> into(streams * 10);
            std::vector<std::unique_ptr<started_receive>> receives;
            peer.to_peer().room = 0;
            for (std::uint32_t n = 0; n < streams; ++n) {
                receives.push_back(std::make_unique<started_receive>(
                    peer.self().recv(std::span(into).subspan(n * 10, 10), n)));
                // Synchronous: each sender waits for `proceed`, for which there is no room. No piece comes.
                peer.say(wire_kind::announce, n, announcement(n, 1, 10));
            }
            co_await turns(10);
            CHECK(peer.heard().empty());
            CHECK(peer.to_peer().retries >= streams);
            peer.to_peer().posts_until_down = before_the_end;
            peer.to_peer().room = loopback_lane::unlimited;
            while (peer.self().is_open()) co_await yield();
            for (auto& each : receives) {
                const auto ended = co_await as_result(*each);
                CHECK(ended.error() == errc::peer_lost);
            }
            co_await turns(5);
            std::size_t heard = 0;
            for (const heard_message& m : peer.heard()) heard += is(m, wire_kind::proceed) ? 1 : 0;
            CHECK(heard == before_the_end);
        }(world.on, sent));
    }
}

}  // namespace test_protocol_segmented_owed
