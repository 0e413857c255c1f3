// staged_get when a side closes with messages in its blocks.

#include <rdmacoro/protocol/staged_get.hpp>

#include "support/catch.hpp"
#include "support/staged.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_staged_closing {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::staged;

TEST_CASE("frames of a side that closes: leaving, and goodbye behind the last received") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(100);
        co_await peer.self().send(data, 1);
        co_await peer.self().send(data, 2);
        co_await peer.hear();
        co_await peer.hear();
        peer.send_raw(received_kind, 0, {});
        co_await turns(3);
        auto closing = start(peer.self().close());
        heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        co_await turns(5);
        CHECK(peer.heard().empty());
        peer.send_raw(received_kind, 1, {});
        said = co_await peer.hear();
        CHECK(said.header.kind == static_cast<std::uint8_t>(wire_kind::goodbye));
        CHECK_FALSE(closing.done());
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
    });
}

TEST_CASE("a side that closes with nothing in its blocks says goodbye at once") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        co_await peer.self().send(pattern(100), 1);
        co_await peer.hear();
        peer.send_raw(received_kind, 0, {});
        co_await turns(3);
        auto closing = start(peer.self().close());
        const heard_message said = co_await peer.hear();
        CHECK(said.header.kind == static_cast<std::uint8_t>(wire_kind::goodbye));
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
    });
}

TEST_CASE("an unmatched message is got when its sender closes, and received later in order") {
    for (const bool later : {false, true}) {
        CAPTURE(later);
        virtual_time world;
        world.run([](scheduler& on, bool deferred) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.from_b().defers_one_sided = deferred;
            pair.wire->offered.get_alignment = 4;
            const auto data = pattern(1001);
            // More than there are blocks: those behind follow while it closes.
            constexpr std::size_t count = blocks + 20;
            std::deque<send_type> sends;
            for (std::size_t n = 0; n < count; ++n)
                sends.emplace_back(pair.a.send(std::span(data).subspan(n, n % 3 == 0 ? 0 : 900), n % 2));
            while (pair.b.counts().unexpected < blocks) co_await yield();
            co_await turns(20);
            CHECK(pair.b.counts().unexpected == blocks);
            CHECK(pair.from_b().gets == 0);
            co_await pair.a.close();
            CHECK(pair.b.counts().unexpected == count);
            for (auto& s : sends) co_await s;
            const received seen = co_await pair.b.probe(1);
            CHECK(seen.bytes == 900);
            std::vector<std::byte> into(1000);
            for (std::size_t n = 1; n < count; n += 2) {
                const received got = co_await pair.b.recv(into, 1);
                REQUIRE(got.bytes == (n % 3 == 0 ? 0 : 900));
                REQUIRE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got.bytes),
                                   data.begin() + static_cast<std::ptrdiff_t>(n)));
            }
            for (std::size_t n = 0; n < count; n += 2) {
                if (n == 4) {
                    const message m = co_await pair.b.recv_lent();
                    REQUIRE(m.bytes().size() == 900);
                    REQUIRE(std::equal(m.bytes().begin(), m.bytes().end(), data.begin() + 4));
                    continue;
                }
                const received got = co_await pair.b.recv(into);
                REQUIRE(got.bytes == (n % 3 == 0 ? 0 : 900));
            }
            const auto none = co_await as_result(pair.b.recv(into));
            CHECK(none.error() == errc::closed);
            CHECK(at_rest(pair));
        }(world.on, later));
    }
}

TEST_CASE("what comes behind leaving is paid for like a message that is kept whole") {
    const auto cost = detail::message_cost(16384);
    virtual_time world;
    world.run([](scheduler& on, std::uint32_t each) -> task<> {
        peer_type peer(on);
        co_await peer.open();  // the least budget there is
        const auto data = pattern(16384);
        std::deque<send_type> sends;
        const std::uint32_t more = (detail::least_budget - blocks * detail::message_cost(0)) / each;
        for (std::uint32_t n = 0; n < blocks + more + 1; ++n) sends.emplace_back(peer.self().send(data, n));
        auto closing = start(peer.self().close());
        std::uint32_t asked = 0;
        for (int n = 0; n < 2000; ++n) {
            co_await yield();
            while (!peer.heard().empty()) {
                const heard_message said = co_await peer.hear();
                if (said.header.kind != request) continue;
                ++asked;
                const auto block = detail::load_number<std::uint32_t>(said.payload.data());
                peer.send_raw(received_kind, block, {});
            }
        }
        CHECK(asked == blocks + more);
        CHECK_FALSE(sends.back().done());
        peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(each));
        co_await sends.back();
        sends.pop_back();  // an operation is awaited once
        const heard_message last = co_await peer.hear();
        CHECK(last.header.kind == request);
        CHECK_FALSE(closing.done());
        peer.self().abort();
        co_await closing;
        for (auto& s : sends) co_await s;
    }(world.on, cost));
}

TEST_CASE("a peer that leaves cannot have more kept than it was granted") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        mailbox_options options;
        options.unexpected_bytes = 256_KiB;
        peer_type peer(on, options);
        co_await peer.open();
        const peer_block from(peer);
        peer.send_raw(leaving, 0, {});
        const std::uint32_t most = detail::least_budget / detail::message_cost(16384);
        for (std::uint32_t n = 0; n < most; ++n) {
            from.ask(peer, 0, 16384, 1);
            const heard_message said = co_await peer.hear();
            REQUIRE(said.header.kind == received_kind);
        }
        auto& box = peer.self().connection().mailbox();
        CHECK(box.matching().unexpected() == most);
        CHECK(peer.self().is_open());
        from.ask(peer, 0, 16384, 1);
        while (peer.self().is_open()) co_await yield();
        const auto later = co_await as_result(peer.self().send({}, 1));
        CHECK(later.error() == errc::protocol_violation);
        // A message kept whole is there all the same.
        std::vector<std::byte> into(16384);
        for (std::uint32_t n = 0; n < most; ++n) {
            co_await peer.self().recv(into, 1);
            CHECK(from.holds(into));
        }
    }(world.on));
}

TEST_CASE("both sides may close with unmatched messages") {
    with_pair<list>([](pair_type& pair) -> task<> {
        co_await pair.a.send(pattern(1000), 1);
        co_await pair.b.send(pattern(1000), 1);
        pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
        pair.from_a().room = pair.from_b().room = 1;
        auto first = start(pair.a.close());
        auto second = start(pair.b.close());
        CHECK_FALSE(first.done());
        CHECK_FALSE(second.done());
        co_await first;
        co_await second;
        // Each got the other's message before it was gone, and has it still.
        CHECK(pair.from_a().gets == 1);
        CHECK(pair.from_b().gets == 1);
        for (auto* end : {&pair.a, &pair.b}) {
            std::vector<std::byte> into(1000);
            co_await end->recv(into, 1);
            CHECK(into == pattern(1000));
            const auto no_more = co_await as_result(end->recv(into, 1));
            CHECK(no_more.error() == errc::closed);
        }
        CHECK(at_rest(pair));
    });
}

TEST_CASE("receives that come while a leaving sender's message is being got are served all the same") {
    enum class what { whole, short_, canceled, none };
    for (const what w : {what::whole, what::short_, what::canceled, what::none}) {
        CAPTURE(static_cast<int>(w));
        virtual_time world;
        world.run([](scheduler& on, int then) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.from_b().defers_one_sided = true;
            pair.from_b().one_sided_steps = 0;
            const auto data = pattern(1000);
            co_await pair.a.send(data, 1);
            co_await pair.b.probe(1);
            auto closing = start(pair.a.close());
            co_await turns(5);
            CHECK(pair.from_b().gets == 1);
            std::vector<std::byte> into(then == static_cast<int>(what::short_) ? 999 : 1000);
            local_stop_source stop;
            if (then == static_cast<int>(what::none)) {
                pair.from_b().one_sided_steps = loopback_lane::unlimited;
                co_await closing;
                co_await pair.b.recv(into, 1);
                CHECK(into == data);
                co_return;
            }
            auto receiving = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
            co_await turns(2);
            if (then == static_cast<int>(what::canceled)) {
                stop.request_stop();
                co_await turns(1);
                CHECK(receiving.done());
            }
            CHECK_FALSE(closing.done());
            pair.from_b().one_sided_steps = loopback_lane::unlimited;
            co_await closing;
            const auto ended = co_await receiving;
            if (then == static_cast<int>(what::whole)) {
                CHECK(ended);
                CHECK(into == data);
            } else {
                CHECK(ended.error() ==
                      (then == static_cast<int>(what::short_) ? errc::truncated : errc::canceled));
                CHECK(into == std::vector<std::byte>(into.size()));
            }
            CHECK(at_rest(pair));
        }(world.on, static_cast<int>(w)));
    }
}

}  // namespace test_protocol_staged_closing
