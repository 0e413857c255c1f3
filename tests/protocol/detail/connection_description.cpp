#include <rdmacoro/protocol/detail/connection_description.hpp>

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/messaging/mailbox.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/timeout.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

namespace test_protocol_detail_connection_description {

using namespace rdmacoro;
using namespace std::chrono_literals;

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

}  // namespace test_protocol_detail_connection_description
