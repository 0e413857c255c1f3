#include <rdmacoro/transport/detail/bare_session.hpp>

#include <rdmacoro/transport/bare_link.hpp>

#include "support/catch.hpp"
#include "support/loopback.hpp"
#include "support/shm_pair.hpp"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace test_transport_detail_bare_session {

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(message_sink<detail::bare_session<shm>>);

namespace {

/// Two sessions over shared memory.
struct sessions {
    scheduler on{impatient{}};
    shm::domain near{on};
    shm::domain far{on};
    std::unique_ptr<detail::bare_session<shm>> a;
    std::unique_ptr<detail::bare_session<shm>> b;

    sessions() {
        on.run([](sessions& s, std::string name) -> task<> {
            auto listening = co_await s.far.listen(name);
            auto accepting = start(listening.accept());
            s.a = std::make_unique<detail::bare_session<shm>>(co_await s.near.connect(name));
            s.b = std::make_unique<detail::bare_session<shm>>(co_await accepting);
        }(*this, shm_test_name()));
    }
};

}  // namespace

TEST_CASE("a session stores nothing: without a receive the transport keeps the message") {
    sessions s;
    const std::array<std::byte, 4> data{};
    CHECK(s.b->deliver({}, data) == delivery::defer);
    CHECK(s.b->begin_payload({}, 100) == delivery::defer);
    CHECK(s.b->payload_space().empty());
}

TEST_CASE("a session that is closed says why, and closing again changes nothing") {
    sessions s;
    CHECK_FALSE(s.a->reason());
    s.a->close(make_error_code(errc::closed));
    CHECK(s.a->reason() == errc::closed);
    s.a->close(make_error_code(errc::no_resources));
    CHECK(s.a->reason() == errc::closed);
    for (int n = 0; n < 1'000'000 && !s.b->reason(); ++n) s.on.turn();
    CHECK(s.b->reason() == errc::peer_lost);
}

namespace {

/// The only operation that is described.
pending_operation only_described(scheduler& on) {
    const description all = on.describe();
    INFO(all.text());
    REQUIRE(all.operations().size() == 1);
    CHECK_FALSE(all.operations()[0].peer.empty());
    return all.operations()[0];
}

}  // namespace

TEST_CASE("the operations of a bare link are described at each stage, with the party that must act") {
    using namespace std::chrono_literals;
    scheduler on{impatient{}};
    on.run([](scheduler& here) -> task<> {
        loopback_domain domain(here);
        auto wire = std::make_shared<loopback_wire>();
        wire->domains[0] = wire->domains[1] = &domain;
        wire->offered.one_sided_offloaded = false;
        bare_link<loopback> a(loopback_connection(wire, 0));
        bare_link<loopback> b(loopback_connection(wire, 1));
        std::vector<std::byte> data(1000);
        std::vector<std::byte> into(1000);
        CHECK(here.describe().operations().empty());
        // No room, then with the network.
        wire->lanes[0].room = 0;
        auto sending = start(a.send(std::span(data).first(10)));
        CHECK(only_described(here).what == "send");
        CHECK(only_described(here).bytes == 10);
        CHECK(only_described(here).stage == "waits for room in the link");
        CHECK(only_described(here).next == next_actor::network);
        wire->lanes[0].defers = true;
        wire->lanes[0].held = true;
        wire->lanes[0].room = loopback_lane::unlimited;
        while (only_described(here).stage == "waits for room in the link") co_await yield();
        CHECK(only_described(here).stage == "handed to the network");
        CHECK_FALSE(only_described(here).waited.has_value());
        wire->lanes[0].held = false;
        co_await b.recv(into);
        co_await sending;
        CHECK(here.describe().operations().empty());
        // A receive, and for how long it waits.
        {
            task_group waiting;
            waiting.spawn([&]() -> task<> { co_await b.recv(into); });
            co_await sleep_for(2ms);
            CHECK(only_described(here).what == "recv");
            CHECK(only_described(here).bytes == 1000);
            CHECK(only_described(here).next == next_actor::peer_send);
            REQUIRE(only_described(here).waited.has_value());
            CHECK(*only_described(here).waited >= 1ms);
            wire->lanes[0].defers = false;
            wire->lanes[0].announces_above = 100;
            wire->lanes[0].piece = 300;
            co_await a.send(data);
            while (only_described(here).stage == "posted, no message has come") co_await yield();
            CHECK(only_described(here).stage == "is being filled");
            CHECK(only_described(here).next == next_actor::network);
            co_await waiting.join();
        }
        // Gets and puts.
        const region open = domain.register_memory(into, access_rights::all);
        wire->lanes[0].defers_one_sided = true;
        wire->lanes[0].one_sided_steps = 0;
        wire->lanes[0].one_sided_room = 0;
        for (const bool read : {true, false}) {
            auto moving = start(read ? a.rdma_get(open.remote(), data) : a.rdma_put(data, open.remote()));
            CHECK(only_described(here).what == (read ? "rdma_get" : "rdma_put"));
            CHECK(only_described(here).stage == "waits for room in the link");
            CHECK(only_described(here).next == next_actor::network);
            wire->lanes[0].one_sided_room = 1;
            while (only_described(here).stage == "waits for room in the link") co_await yield();
            CHECK(only_described(here).stage == "is under way");
            CHECK(only_described(here).next == next_actor::peer_poll);
            wire->lanes[0].one_sided_steps = 1;
            co_await moving;
            wire->lanes[0].one_sided_room = 0;
            CHECK(here.describe().operations().empty());
        }
    }(on));
}

TEST_CASE("operations of a bare link that are stopped, or end with it, leave nothing behind in its lists") {
    scheduler on{impatient{}};
    on.run([](scheduler& here) -> task<> {
        loopback_domain domain(here);
        auto wire = std::make_shared<loopback_wire>();
        wire->domains[0] = wire->domains[1] = &domain;
        std::vector<std::byte> data(100);
        std::vector<std::byte> into(100);
        std::optional<bare_link<loopback>> a(std::in_place, loopback_connection(wire, 0));
        bare_link<loopback> b(loopback_connection(wire, 1));
        const region open = domain.register_memory(into, access_rights::all);
        loopback_lane& lane = wire->lanes[0];
        for (const bool room : {true, false}) {
            for (const bool stopped : {true, false}) {
                CAPTURE(room, stopped);
                lane.room = lane.one_sided_room = room ? loopback_lane::unlimited : 0;
                lane.defers = lane.defers_one_sided = lane.held = true;
                local_stop_source stop;
                auto sending =
                    start(as_result(with_stop(a->send(std::span<const std::byte>(data)), stop.get_token())));
                auto behind = start(as_result(a->send(std::span<const std::byte>(data))));
                auto putting = start(as_result(with_stop(
                    a->rdma_put(std::span<const std::byte>(data), open.remote()), stop.get_token())));
                auto getting =
                    start(as_result(with_stop(a->rdma_get(open.remote(), into), stop.get_token())));
                auto receiving = start(as_result(with_stop(a->recv(into), stop.get_token())));
                CHECK(here.describe().operations().size() == 5);
                if (stopped) {
                    stop.request_stop();
                    const auto sent = co_await sending;
                    CHECK(static_cast<bool>(sent) == room);  // what the network has goes on
                    const auto put = co_await putting;
                    CHECK(put.error() == errc::canceled);
                    const auto got = co_await getting;
                    CHECK(got.error() == errc::canceled);
                    const auto received = co_await receiving;
                    CHECK(received.error() == errc::canceled);
                    CHECK(here.describe().operations().size() == 1);
                    lane.held = false;
                    lane.room = lane.one_sided_room = loopback_lane::unlimited;
                    if (room) co_await b.recv(into);
                    co_await b.recv(into);
                    const auto other = co_await behind;
                    CHECK(other.has_value());
                } else {
                    a->close();
                    const auto sent = co_await sending;
                    CHECK(sent.error() == errc::closed);
                    const auto other = co_await behind;
                    CHECK(other.error() == errc::closed);
                    const auto put = co_await putting;
                    CHECK(put.error() == errc::closed);
                    const auto got = co_await getting;
                    CHECK(got.error() == errc::closed);
                    const auto received = co_await receiving;
                    CHECK(received.error() == errc::closed);
                    CHECK(here.describe().operations().empty());
                    co_return;
                }
                CHECK(here.describe().operations().empty());
            }
        }
    }(on));
}

}  // namespace test_transport_detail_bare_session
