// Calls whose link is lost at some moment, over the simulated network, in every order of events: before the request is there, in the handler, in
// the middle of an answer or of a get, between two items of a stream.
#include <rdmacoro/service/calls.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace test_service_calls_explored {

using namespace rdmacoro;

namespace {

struct deed {
    static constexpr method<"deed.twice", std::uint64_t(std::uint64_t)> twice{};
    static constexpr method<"deed.row", std::vector<float>(std::uint32_t)> row{};
    static constexpr method<"deed.sum", double(std::vector<float>)> sum{};
    static constexpr method<"deed.load", std::uint64_t(remote_region)> load{};
    static constexpr method<"deed.items", stream<std::uint32_t>(std::uint32_t)> items{};
    static constexpr method<"deed.count", std::uint32_t(stream<std::uint32_t>)> count{};
    static constexpr method<"deed.wait", void()> wait{};
};

struct world_of_two {
    explicit world_of_two(exploration& x) : network{.world = &x.world()} {
        offered.on(deed::twice,
                   [](call_context&, std::uint64_t n) -> task<std::uint64_t> { co_return 2 * n; });
        offered.on(deed::row, [](call_context&, std::uint32_t n) -> task<std::vector<float>> {
            co_return std::vector<float>(n, 1.0F);
        });
        offered.on(deed::sum, [](call_context&, std::vector<float> all) -> task<double> {
            double sum = 0;
            for (const float one : all) sum += static_cast<double>(one);
            co_return sum;
        });
        offered.on(deed::load, [](call_context& c, remote_region from) -> task<std::uint64_t> {
            std::vector<std::byte> room(from.length);
            co_await c.get(from, room);
            std::uint64_t sum = 0;
            for (const std::byte one : room) sum += static_cast<std::uint64_t>(one);
            co_return sum;
        });
        offered.on(deed::items,
                   [](call_context&, std::uint32_t n, stream_writer<std::uint32_t>& out) -> task<> {
                       for (std::uint32_t i = 0; i < n; ++i) co_await out.write(i);
                   });
        offered.on(deed::count, [](call_context&, stream_reader<std::uint32_t>& in) -> task<std::uint32_t> {
            std::uint32_t n = 0;
            while (co_await in.next()) ++n;
            co_return n;
        });
        offered.on(deed::wait, [](call_context&) -> task<> { co_await sleep_for(std::chrono::hours(1)); });
    }
    scheduler& on = *scheduler::current();
    sim_options network;
    sim::domain left{on, network};
    sim::domain right{on, network};
    service offered;
};

/// The caller's program: true where all of it ended well, with the right values.
using caller = task<bool> (*)(calls<sim>&, sim::domain&);

task<bool> short_call(calls<sim>& peer, sim::domain&) {
    co_return co_await peer.call(deed::twice, std::uint64_t{21}) == 42;
}
task<bool> long_answer(calls<sim>& peer, sim::domain&) {
    const std::vector<float> row = co_await peer.call(deed::row, 6000U);
    co_return row == std::vector<float>(6000, 1.0F);
}
task<bool> answer_in_place(calls<sim>& peer, sim::domain&) {
    std::vector<float> row(6000);
    const std::size_t length = co_await peer.call_into(std::span(row), deed::row, 6000U);
    co_return length == 6000 && row == std::vector<float>(6000, 1.0F);
}
task<bool> long_request(calls<sim>& peer, sim::domain&) {
    const std::vector<float> row(6000, 1.0F);
    co_return co_await peer.call(deed::sum, row) == 6000.0;
}
task<bool> one_sided(calls<sim>& peer, sim::domain& here) {
    std::vector<std::byte> bulk(3000, std::byte{1});
    const region open = here.register_memory(bulk, access_rights::remote_read);
    co_return co_await peer.call(deed::load, open.remote()) == 3000;
}
task<bool> items_of_stream(calls<sim>& peer, sim::domain&) {
    auto rows = co_await peer.open(deed::items, 3U);
    std::uint32_t next = 0;
    while (const auto one = co_await rows.next()) {
        if (*one != next++) co_return false;
    }
    co_return next == 3;
}
task<bool> written_stream(calls<sim>& peer, sim::domain&) {
    auto out = co_await peer.open(deed::count);
    for (std::uint32_t n = 0; n < 3; ++n) co_await out.write(n);
    co_return co_await out.finish() == 3;
}
task<bool> canceled_call(calls<sim>& peer, sim::domain& here) {
    sim_actor actor(here);
    local_stop_source stop;
    auto waiting = start(with_stop(peer.call(deed::wait), stop.get_token()));
    co_await actor.step();
    stop.request_stop();
    const auto ended = co_await as_result(waiting);
    if (ended.error() != errc::canceled) throw error(ended.error(), "canceled");
    co_return true;
}

struct calls_lost {
    std::uint64_t ended = 0;
    std::uint64_t lost = 0;
};

task<> does_call(caller what, calls<sim>& peer, sim::domain& here, exploration& x, calls_lost& seen) {
    sim_actor actor(here);
    co_await actor.step();
    try {
        const bool right = co_await what(peer, here);
        x.check(right, "another value");
        ++seen.ended;
    } catch (const std::system_error& failed) {
        const std::error_code why = failed.code();
        x.check(why == errc::peer_lost || why == errc::closed || why == call_errc::stopped,
                "ended with " + std::string(failed.what()));
        ++seen.lost;
    }
}
task<> loses_link(sim::domain& at, const sim::domain& other) {
    sim_actor actor(at);
    co_await actor.step();
    at.drop_links_to(other);
}

task<> lost_at_some_moment(exploration& x, caller what, bool by_caller, calls_lost& seen) {
    world_of_two w(x);
    auto listening = co_await listen<sim>(w.right, "sim://explored");
    auto accepting = rdmacoro::start(listening.accept());
    auto a = co_await connect<sim>(w.left, listening.address());
    auto b = co_await accepting;
    {
        calls<sim> server(b, w.offered);
        calls<sim> client(a);
        x.begin();
        task_group parts;
        parts.spawn(does_call, what, std::ref(client), std::ref(w.left), std::ref(x), std::ref(seen));
        parts.spawn(loses_link, std::ref(by_caller ? w.left : w.right),
                    std::cref(by_caller ? w.right : w.left));
        co_await parts.join();
        x.end();
        co_await sleep_for(
            std::chrono::milliseconds(1));  // of the network's time: all that is under way comes
        x.check(w.offered.running() == 0, "a handler runs on");
        x.check(w.offered.bytes() == 0, "its bytes are counted");
        x.check(!client.over().is_open() && !server.over().is_open(), "a link is open");
    }
}

struct explored_outcome {
    std::string wrong{};
    std::uint64_t executions = 0;
    bool complete = false;
    calls_lost seen{};
};
explored_outcome explore_call(caller what, bool by_caller, std::uint64_t most) {
    explored_outcome found;
    explore_options how;
    how.most_executions = most;
    const explore_report report = explore(
        [&](exploration& x) -> task<> { co_await lost_at_some_moment(x, what, by_caller, found.seen); }, how);
    if (report.failed) found.wrong = report.text();
    found.executions = report.executions;
    found.complete = report.complete;
    return found;
}

struct explored_call {
    const char* name;
    caller what;
};
constexpr explored_call explored_calls[] = {{"short", short_call},         {"long answer", long_answer},
                                            {"in place", answer_in_place}, {"long request", long_request},
                                            {"one-sided", one_sided},      {"items", items_of_stream},
                                            {"written", written_stream},   {"canceled", canceled_call}};

}  // namespace

TEST_CASE("a call whose peer is lost at any moment ends with its value or an error, and leaves nothing") {
    for (const explored_call& one : explored_calls) {
        for (const bool by_caller : {false, true}) {
            const explored_outcome found = explore_call(one.what, by_caller, 1500);
            INFO(one.name << (by_caller ? ", lost by the caller: " : ": ") << found.executions
                          << " executions, ended " << found.seen.ended << ", lost " << found.seen.lost);
            CHECK(found.wrong == "");
            CHECK(found.executions >= 4);
            CHECK(found.seen.lost > 0);
            CHECK(found.seen.ended > 0);
        }
    }
}

TEST_CASE("a call whose peer is lost at any moment ends, in every order there is", "[nightly]") {
    for (const explored_call& one : explored_calls) {
        for (const bool by_caller : {false, true}) {
            const explored_outcome found = explore_call(one.what, by_caller, 300'000);
            INFO(one.name << (by_caller ? ", lost by the caller: " : ": ") << found.executions
                          << " executions");
            CHECK(found.wrong == "");
            CHECK(found.complete);
        }
    }
}

}  // namespace test_service_calls_explored
