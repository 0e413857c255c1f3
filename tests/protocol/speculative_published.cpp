// The two cases in which the published rules of speculation write into a wrong buffer, and when announcing pays.

#include <rdmacoro/protocol/speculative.hpp>

#include "support/catch.hpp"
#include "support/speculation.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_speculative_published {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::speculation;

// ---- the published counter-examples

TEST_CASE(
    "the first published counter-example: a receive that says nothing is met before two that are announced") {
    with_pair<list>([](pair_type& pair) -> task<> {
        std::vector<std::byte> into[3];
        for (auto& memory : into) memory.resize(2000);
        const std::vector<std::byte> from[3] = {pattern(2000, 1), pattern(2000, 2), pattern(2000, 3)};
        pair.hold(true);
        pair.from_b().defers_one_sided = true;
        auto send0 = start(pair.a.send(from[0], 1));        // says its request
        auto recv0 = start(pair.b.recv(into[0], any_tag));  // waits, and announces nothing
        step_to_b(pair);                                    // the request finds receive 0
        auto recv1 = start(pair.b.recv(into[1], 1));
        auto recv2 = start(pair.b.recv(into[2], 1));
        CHECK(pair.b.counts().announced == 2);
        step_to_a(pair);  // announcement 1, while send 0 is not done
        step_to_a(pair);  // announcement 2
        CHECK_FALSE(send0.done());
        auto send1 = start(pair.a.send(from[1], 1));
        CHECK(into[1] == from[1]);
        CHECK(all_are(into[2], 0));
        auto send2 = start(pair.a.send(from[2], 1));
        CHECK(into[2] == from[2]);
        pair.hold(false);
        co_await send0;
        co_await send1;
        co_await send2;
        co_await recv0;
        co_await recv1;
        co_await recv2;
        for (unsigned n = 0; n < 3; ++n) CHECK(into[n] == from[n]);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("the second published counter-example: a send that passed an announcement by takes no later one") {
    with_pair<mixed>([](mixed_pair& pair) -> task<> {
        std::vector<std::byte> into[5];
        std::vector<std::byte> from[5];
        for (unsigned n = 0; n < 5; ++n) {
            into[n].resize(2000);
            from[n] = pattern(n == 0 ? 50 : 2000, n + 1);
        }
        pair.hold(true);
        pair.from_b().defers_one_sided = true;
        auto send0 = start(pair.a.send(from[0], 1));  // eager
        auto recv0 = start(pair.b.recv(into[0], any_tag));
        step_to_b(pair);
        auto recv1 = start(pair.b.recv(into[1], 1));
        auto recv2 = start(pair.b.recv(into[2], 1));
        auto send1 = start(pair.a.send(from[1], 1));  // asks, while announcement 1 is on its way
        step_to_a(pair);
        step_to_a(pair);
        step_to_b(pair);  // request 1 finds receive 1
        pair.from_b().held = false;
        co_await turns(5);  // send 1 is done
        CHECK(send1.done());
        pair.from_b().held = true;
        auto recv3 = start(pair.b.recv(into[3], 1));
        auto recv4 = start(pair.b.recv(into[4], 1));
        pair.from_a().defers_one_sided = true;
        auto send2 = start(pair.a.send(from[2], 1));  // where announcement 2 said; its put takes a while
        CHECK_FALSE(send2.done());
        step_to_a(pair);
        step_to_a(pair);
        pair.from_a().defers_one_sided = false;
        auto send3 = start(pair.a.send(from[3], 1));
        CHECK(into[3] == from[3]);
        CHECK(all_are(into[4], 0));
        auto send4 = start(pair.a.send(from[4], 1));
        CHECK(into[4] == from[4]);
        pair.hold(false);
        co_await send0;
        co_await send1;
        co_await send2;
        co_await send3;
        co_await send4;
        co_await recv0;
        co_await recv1;
        co_await recv2;
        co_await recv3;
        co_await recv4;
        for (unsigned n = 0; n < 5; ++n) CHECK(std::equal(from[n].begin(), from[n].end(), into[n].begin()));
        CHECK(pair.a.counts().announcements_used == 3);
        CHECK(pair.b.counts().announcements_crossed == 1);
        CHECK(pair.at_rest());
    });
}

// ---- adaptation

TEST_CASE("announcing stops where it does not pay and comes back when the program changes") {
    with_pair<mixed>([](mixed_pair& pair) -> task<> {
        const auto data = pattern(1000);
        std::vector<std::byte> into(1000);
        for (int phase = 1; phase <= 2; ++phase) {
            for (int n = 0; n < 64; ++n) {  // receives far longer than their messages
                auto receiving = start(pair.b.recv(into, 1));
                co_await pair.a.send(std::span(data).first(10), 1);
                co_await receiving;
            }
            CHECK(pair.b.counts().speculation_stopped == static_cast<unsigned>(phase));
            const std::uint64_t announced = pair.b.counts().announced;
            for (int n = 0; n < 100; ++n) {  // what they were announced for
                auto receiving = start(pair.b.recv(into, 1));
                co_await turns(2);
                auto sending = start(pair.a.send(data, 1));
                co_await receiving;
                co_await sending;
            }
            CHECK(pair.b.counts().speculation_resumed == static_cast<unsigned>(phase));
            CHECK(pair.b.counts().announced > announced + 50);
        }
        CHECK(pair.b.counts().announcements_mispredicted > 16);
        CHECK(pair.b.counts().announcements_met == pair.a.counts().announcements_used);
        CHECK(ended_of(pair) == pair.b.counts().announced);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("announcements that always cross are given up, and tried ever more rarely") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(1000);
        std::vector<std::byte> into(1000);
        for (int n = 0; n < 2000; ++n) {
            pair.hold(true);
            auto sending = start(pair.a.send(data, 1));
            auto receiving = start(pair.b.recv(into, 1));
            pair.hold(false);
            co_await receiving;
            co_await sending;
        }
        const metrics& m = pair.b.counts();
        CHECK(m.announcements_met == 0);
        CHECK(m.announcements_crossed == m.announced);
        CHECK(m.speculation_stopped >= 4);
        CHECK(m.speculation_stopped <= 8);
        CHECK(m.announced <= 8 * 16);
    });
}

}  // namespace test_protocol_speculative_published
