#include <rdmacoro/protocol/detail/staged_sender.hpp>

#include "support/catch.hpp"
#include "support/staged.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_detail_staged_sender {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::staged;

TEST_CASE("a staged message is one frame of 36 bytes, and its send has ended when that is said") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        auto data = pattern(5000);
        const auto kept = data;
        co_await peer.self().send(data, 0x1122334455667788);
        std::fill(data.begin(), data.end(), std::byte{0});  // the caller's again
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x08, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}));
        REQUIRE(said.payload.size() == 24);
        CHECK(std::vector(said.payload.begin(), said.payload.begin() + 8) ==
              raw({0, 0, 0, 0, 0x88, 0x13, 0, 0}));
        const remote_region block = block_of(said);
        CHECK(block.address % 64 == 0);
        CHECK(block.length == 5056);
        std::vector<std::byte> got(5056);
        completion none;
        CHECK(peer.link().get(block, got, none) == post_result::done);
        got.resize(5000);
        CHECK(got == kept);
        // The next message has the next block, and the first is used again when it is free.
        co_await peer.self().send(std::span(kept).first(10), 1);
        const heard_message second = co_await peer.hear();
        CHECK(std::vector(second.payload.begin(), second.payload.begin() + 8) ==
              raw({1, 0, 0, 0, 10, 0, 0, 0}));
        peer.send_raw(received_kind, 0, {});
        co_await turns(3);
        co_await peer.self().send(std::span(kept).first(1), 2);
        const heard_message third = co_await peer.hear();
        CHECK(third.payload == body(0, 1, block));
        const metrics& counts = peer.self().counts();
        CHECK(counts.staged_sent == 3);
        CHECK(counts.messages_sent == 3);
        CHECK(counts.bytes_sent == 5011);
        CHECK(counts.payload_copies == 3);
        CHECK(counts.bytes_copied == 5011);
        CHECK(counts.regions_exposed == 2);
    });
}

TEST_CASE("a staged request is paid for, and waits when the peer gives no credit back") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        peer_type peer(on);
        co_await peer.open();  // the least budget there is
        constexpr unsigned paid = detail::least_budget / detail::message_cost(0);
        const auto data = pattern(16384);
        for (unsigned n = 0; n < paid; ++n) {
            co_await peer.self().send(data, n);
            co_await peer.hear();
            peer.send_raw(received_kind, 0, {});
            co_await turns(2);
        }
        CHECK(peer.self().counts().credit_waits == 0);
        auto next = start(peer.self().send(data, 1));
        co_await turns(5);
        REQUIRE(peer.heard().size() == 1);
        CHECK(peer.heard().front().header.kind == static_cast<std::uint8_t>(wire_kind::starved));
        peer.heard().clear();
        CHECK_FALSE(next.done());
        peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(detail::message_cost(0)));
        co_await next;
        CHECK(peer.self().counts().credit_waits == 1);
        CHECK(peer.self().counts().regions_exposed == 1);
    }(world.on));
}

TEST_CASE("as many blocks as can be opened are enough; none at all are not") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(100);
        pair.from_a().exposures = 0;
        const auto ended = co_await as_result(pair.a.send(data, 1));
        CHECK(ended.error() == errc::no_resources);
        pair.from_a().exposures = 2;
        std::deque<send_type> sends;
        for (std::size_t n = 0; n < 10; ++n) sends.emplace_back(pair.a.send(std::span(data).first(n), 1));
        co_await turns(3);
        CHECK(sends[1].done());
        CHECK_FALSE(sends[2].done());
        std::vector<std::byte> into(100);
        for (std::size_t n = 0; n < 10; ++n) {
            const received got = co_await pair.b.recv(into, 1);
            CHECK(got.bytes == n);
        }
        for (auto& s : sends) co_await s;
        CHECK(at_rest(pair));
    });
}

TEST_CASE("a send that waits for a block can be canceled, and those behind it go on") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(100);
        for (std::uint32_t n = 0; n < blocks; ++n) co_await pair.a.send(data, n);
        local_stop_source stop;
        auto waiting = start(as_result(with_stop(pair.a.send(data, 1000), stop.get_token())));
        auto behind = start(pair.a.send(data, 1001));
        co_await turns(3);
        stop.request_stop();
        const auto ended = co_await waiting;
        CHECK(ended.error() == errc::canceled);
        CHECK_FALSE(behind.done());
        std::vector<std::byte> into(100);
        for (std::uint32_t n = 0; n < blocks; ++n) co_await pair.b.recv(into, n);
        co_await behind;
        const received got = co_await pair.b.recv(into);
        CHECK(got.tag == 1001);
        CHECK(at_rest(pair));
    });
}

TEST_CASE("the blocks' regions go with the link") {
    with_pair<list>([](pair_type& pair) -> task<> {
        co_await works(pair);
        co_await turns(2);
        CHECK(pair.domain.regions().registered() == 1);
        co_await pair.a.close();
        while (pair.b.is_open()) co_await yield();
        CHECK(pair.at_rest());
    });
}

TEST_CASE("received for a block that is not in use ends the link with protocol_violation") {
    const forbidden<peer_type> all[] = {
        {"twice",
         [](peer_type& p) {
             p.send_raw(received_kind, 0, {});
             p.send_raw(received_kind, 0, {});
         }},
        {"the next block", [](peer_type& p) { p.send_raw(received_kind, 1, {}); }},
        {"with a flag", [](peer_type& p) { p.send_raw(received_kind, 0, {}, 0, 1); }},
        {"with a payload", [](peer_type& p) { p.send_raw(received_kind, 0, raw({1})); }},
    };
    for (const auto& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden<peer_type>& what) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            co_await peer.self().send(pattern(100), 1);
            co_await peer.hear();
            what.act(peer);
            while (peer.self().is_open()) co_await yield();
            const auto later = co_await as_result(peer.self().send(pattern(100), 1));
            CHECK(later.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

}  // namespace test_protocol_detail_staged_sender
