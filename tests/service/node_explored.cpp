#include <rdmacoro/service/node.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"

#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include <cstdint>
#include <string>

namespace test_service_node_explored {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

node_options of_life(std::uint64_t number) {
    node_options o;
    o.born = generation{number};
    return o;
}

/// A node's user: speaks to the other node at a moment that the explorer chooses, and hears what it says.
task<> converse(node<sim>& here, sim::domain& at, node_id with, exploration& x) {
    sim_actor actor(at);
    co_await actor.step();
    auto other = here.peer(with);
    co_await say(other, "from " + std::to_string(here.card().id));
    co_await actor.step();
    const std::string heard = co_await hear(other);
    x.check(heard == "from " + std::to_string(with), "heard " + heard);
}

/// The user of a node that does not know the other one's address: it can speak once that has connected, and hears it first.
task<> reply(node<sim>& here, sim::domain& at, node_id with, exploration& x) {
    sim_actor actor(at);
    co_await actor.step();
    auto other = here.peer(with);
    const std::string heard = co_await hear(other);
    x.check(heard == "from " + std::to_string(with), "heard " + heard);
    co_await actor.step();
    co_await say(other, "from " + std::to_string(here.card().id));
}

/// Each to a place of its own, so that addresses are the same in each run. `both`: the second knows the first one's address, too.
task<> connect_nodes(exploration& x, bool both) {
    sim_options of_node;
    of_node.world = &x.world();
    scheduler& on = *scheduler::current();
    sim::domain left(on, of_node), right(on, of_node);
    node<sim> one(1, of_life(11), left);
    node<sim> two(2, of_life(22), right);
    co_await one.listen("sim://one");
    co_await two.listen("sim://two");
    one.add(two.card());
    if (both) two.add(one.card());
    x.begin();
    task_group users;
    users.spawn(converse, std::ref(one), std::ref(left), node_id{2}, std::ref(x));
    users.spawn(both ? converse : reply, std::ref(two), std::ref(right), node_id{1}, std::ref(x));
    co_await users.join();
    x.end();
    x.check(one.connections() == 1 && two.connections() == 1, "not one connection");
}

}  // namespace

TEST_CASE(
    "two nodes that connect to each other at once keep one connection and lose nothing, in every order") {
    explore_options how;
    how.most_executions = 3000;
    const explore_report report =
        explore([](exploration& x) -> task<> { co_await connect_nodes(x, true); }, how);
    INFO(report.text());
    CHECK(!report.failed);
    CHECK(report.executions > 100);
    CHECK(report.complete);
}

TEST_CASE(
    "two nodes of which one alone knows the other have one connection and lose nothing, in every order") {
    explore_options how;
    how.most_executions = 3000;
    const explore_report report =
        explore([](exploration& x) -> task<> { co_await connect_nodes(x, false); }, how);
    INFO(report.text());
    CHECK(!report.failed);
    CHECK(report.executions > 4);
    CHECK(report.complete);
}

TEST_CASE("two nodes that connect to each other at once keep one connection, in random orders") {
    explore_options how;
    how.random_executions = 2000;
    const explore_report report =
        explore([](exploration& x) -> task<> { co_await connect_nodes(x, true); }, how);
    INFO(report.text());
    CHECK(!report.failed);
}

}  // namespace test_service_node_explored
