#include <rdmacoro/protocol/detail/connection_description.hpp>

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/messaging/mailbox.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/yield.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <string>

namespace test_protocol_detail_connection_description {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// The shortest time of a few looks at a mailbox with so many links and receives from any source.
duration look_at(std::size_t links, std::size_t receives) {
    duration shortest = 1h;
    sim_world world;
    scheduler here(idle::spin{}, world.time());
    here.run([&](scheduler& on) -> task<> {
        sim_options options;
        options.world = &world;
        sim::domain near(on, options);
        sim::domain far(on, options);
        auto listening = co_await listen<sim>(far, "far");
        mailbox<sim> box(on);
        mailbox<sim> others(on);
        for (std::size_t n = 0; n < links; ++n) {
            auto accepting = start(listening.accept());
            static_cast<void>(box.attach(co_await connect<sim>(near, "far")));
            static_cast<void>(others.attach(co_await accepting));
        }
        std::byte nothing[1];
        task_group waiting;
        for (std::size_t n = 0; n < receives; ++n)
            waiting.spawn([&]() -> task<> { static_cast<void>(co_await as_result(box.recv(nothing, 1))); });
        while (box.base().matching().posted() != receives) co_await yield();
        for (int n = 0; n < 5; ++n) {
            const auto began = std::chrono::steady_clock::now();
            const description all = on.describe();
            shortest = std::min(shortest, duration(std::chrono::steady_clock::now() - began));
            REQUIRE(all.operations().size() == receives);
        }
        waiting.request_stop();
        co_await waiting.join();
    }(here));
    return shortest;
}

}  // namespace

TEST_CASE("a mailbox's receives name their source, and those from any say so", "[describe]") {
    sim_world world;
    scheduler here(idle::spin{}, world.time());
    here.run([](scheduler& on, sim_world& in) -> task<> {
        sim_options options;
        options.world = &in;
        sim::domain near(on, options);
        sim::domain far(on, options);
        auto listening = co_await listen<sim>(far, "far");
        auto accepting = start(listening.accept());
        auto made = co_await connect<sim>(near, "far");
        auto other = co_await accepting;
        mailbox<sim> box(on);
        const peer_id peer = box.attach(std::move(made));
        std::array<std::byte, 8> a{}, b{};
        auto from_any = start(box.recv(a, 1));
        auto from_peer = start(box.recv(b, tag_match(2, 3), peer));
        auto looks = start(box.probe(5));
        const description all = on.describe();
        INFO(all.text());
        REQUIRE(all.operations().size() == 3);
        const auto has = [&](const std::string& text) {
            return std::count_if(all.operations().begin(), all.operations().end(),
                                 [&](const pending_operation& one) { return one.text() == text; }) == 1;
        };
        CHECK(has("recv, tag 1, 8 bytes, peer any: posted, no message has met it; "
                  "the peer must send a message that matches"));
        CHECK(has("recv, tag 2 under mask 0x3, 8 bytes, peer " + box.peer_name(peer) +
                  ": posted, no message has met it; the peer must send a message that matches"));
        CHECK(has("probe, tag 5, peer any: no message waits; the peer must send a message that matches"));
        // One that was canceled and waits to drop its message is no operation.
        std::array<std::byte, 8> c{};
        const auto late = co_await as_result(timeout(box.recv(c, 9, peer, discard_if_canceled), 1ms));
        CHECK(late.error() == errc::timed_out);
        CHECK(box.base().matching().posted() == 3);
        CHECK(on.describe().operations().size() == 3);
        for (const tag_type tag : {tag_type{1}, tag_type{2}, tag_type{5}}) co_await other.send(a, tag);
        co_await from_any;
        co_await from_peer;
        co_await looks;
        CHECK(on.describe().operations().empty());
    }(here, world));
}

TEST_CASE("a look at many links of a mailbox visits its receives from any source once", "[describe]") {
    constexpr std::size_t many = 2000;
    const duration links = look_at(many, 0);
    const duration receives = look_at(1, many);
    const duration both = look_at(many, many);
    CAPTURE(links.count(), receives.count(), both.count());
    CHECK(both < 8 * (links + receives));
}

}  // namespace test_protocol_detail_connection_description
