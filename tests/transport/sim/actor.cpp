#include <rdmacoro/transport/sim/actor.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace test_transport_sim_actor {

using namespace rdmacoro;
using namespace std::chrono_literals;

TEST_CASE("a step of an actor is an event of its world, in the order of time") {
    sim_world world;
    scheduler on(test::impatient{}, world.time());
    sim_options options;
    options.world = &world;
    sim::domain node(on, options);
    sim_actor actor(node);
    on.run([](sim_actor& a, sim_world& w) -> task<> {
        const auto before = w.events();
        co_await a.step();
        co_await a.step();
        CHECK(w.events() == before + 2);
    }(actor, world));
}

TEST_CASE("a step that is canceled is no event any more") {
    sim_world_options slow;
    slow.jitter = 1h;
    slow.seed = 3;
    sim_world world(slow);
    scheduler on(test::impatient{}, world.time());
    sim_options options;
    options.world = &world;
    sim::domain node(on, options);
    sim_actor actor(node);
    on.run([](sim_actor& a, sim_world& w) -> task<> {
        local_stop_source stop;
        auto stepping = start(as_result(with_stop(a.step(), stop.get_token())));
        REQUIRE_FALSE(w.queue().empty());
        stop.request_stop();
        const auto ended = co_await stepping;
        CHECK(ended.error() == errc::canceled);
        CHECK(w.queue().empty());
        CHECK(w.events() == 0);
    }(actor, world));
}

namespace {

/// A message is on its way to one node while the other one breaks the link: whether it came, and whether it did not.
struct messages_seen {
    bool came = false;
    bool lost = false;
    std::uint64_t executions = 0;
};
task<> receives(endpoint<sim>& from, std::error_code& ended) {
    const auto got = co_await as_result(from.recv_lent());
    ended = got.error();
}
task<> breaks(sim::domain& at, const sim::domain& other, bool says) {
    sim_actor actor(at);
    if (says) actor.touches(other);
    co_await actor.step();
    at.drop_links_to(other);
}
task<> broken_after_a_message(exploration& x, bool says, messages_seen& seen) {
    sim_options network;
    network.world = &x.world();
    sim::domain left(*scheduler::current(), network);
    sim::domain right(*scheduler::current(), network);
    auto listening = co_await listen<sim>(right, "sim://broken");
    auto accepting = start(listening.accept());
    auto a = co_await connect<sim>(left, listening.address());
    auto b = co_await accepting;
    x.begin();
    co_await b.send(std::string_view("on its way"));
    task_group parts;
    std::error_code ended;
    parts.spawn(receives, std::ref(a), std::ref(ended));
    parts.spawn(breaks, std::ref(right), std::cref(left), says);
    co_await parts.join();
    if (!ended) seen.came = true;
    if (ended == errc::peer_lost) seen.lost = true;
}
messages_seen explored_breaks(bool says, bool reduces) {
    messages_seen seen;
    explore_options how;
    how.reduction = reduces;
    const explore_report report =
        explore([&](exploration& x) -> task<> { co_await broken_after_a_message(x, says, seen); }, how);
    CHECK(report.complete);
    CHECK(!report.failed);
    seen.executions = report.executions;
    return seen;
}

}  // namespace

TEST_CASE("a step that touches another node is taken before and after that one's events") {
    const messages_seen all = explored_breaks(false, false);
    CHECK(all.came);
    CHECK(all.lost);
    CHECK(all.executions >= 3);
    const messages_seen reduced = explored_breaks(true, true);
    CHECK(reduced.came);
    CHECK(reduced.lost);
    CHECK(reduced.executions == all.executions);
    // One that does not say so is taken to be independent of them.
    const messages_seen silent = explored_breaks(false, true);
    CHECK(silent.executions < all.executions);
}

}  // namespace test_transport_sim_actor
