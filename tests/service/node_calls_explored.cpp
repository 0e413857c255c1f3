// Two nodes that call each other at once, over the simulated network, in many orders of events.
#include <rdmacoro/service/node_calls.hpp>

#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <optional>

namespace test_service_node_calls_explored {

using namespace rdmacoro;

namespace {

struct explored_kv {
    static constexpr method<"kv.twice", std::uint64_t(std::uint64_t)> twice{};
};

node_options of_life(std::uint64_t number) {
    node_options o;
    o.born = generation{number};
    return o;
}

task<> calls_other(node_calls<sim>& peers, sim::domain& at, node_id other, exploration& x) {
    sim_actor actor(at);
    co_await actor.step();
    const std::uint64_t got = co_await peers.call(other, explored_kv::twice, std::uint64_t{other});
    x.check(got == 2 * std::uint64_t{other}, "another answer");
}

task<> both_call(exploration& x) {
    sim_options of_node;
    of_node.world = &x.world();
    scheduler& on = *scheduler::current();
    sim::domain left(on, of_node), right(on, of_node);
    service doubles;
    doubles.on(explored_kv::twice,
               [](call_context&, std::uint64_t n) -> task<std::uint64_t> { co_return 2 * n; });
    std::optional<node_calls<sim>> from_one, from_two;
    node<sim> one(1, of_life(11), left);
    node<sim> two(2, of_life(22), right);
    from_one.emplace(one);
    from_two.emplace(two);
    from_one->serve(doubles);
    from_two->serve(doubles);
    co_await one.listen("sim://one");
    co_await two.listen("sim://two");
    one.add(two.card());
    two.add(one.card());
    x.begin();
    task_group users;
    users.spawn(calls_other, std::ref(*from_one), std::ref(left), node_id{2}, std::ref(x));
    users.spawn(calls_other, std::ref(*from_two), std::ref(right), node_id{1}, std::ref(x));
    co_await users.join();
    x.end();
    x.check(one.connections() == 1 && two.connections() == 1, "not one connection");
    x.check(doubles.running() == 0, "a handler runs on");
}

}  // namespace

TEST_CASE("two nodes that call each other at once are both answered, over one connection, in random orders") {
    explore_options how;
    how.random_executions = 2000;
    const explore_report report = explore([](exploration& x) -> task<> { co_await both_call(x); }, how);
    INFO(report.text());
    CHECK(!report.failed);
    CHECK(report.executions == 2000);
}

TEST_CASE("two nodes that call each other at once are both answered, over one connection, in every order") {
    explore_options how;
    how.most_executions = 20000;
    const explore_report report = explore([](exploration& x) -> task<> { co_await both_call(x); }, how);
    INFO(report.text());
    CHECK(!report.failed);
    CHECK(report.executions > 100);
    CHECK(report.complete);
}

}  // namespace test_service_node_calls_explored
