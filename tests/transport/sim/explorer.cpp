#include <rdmacoro/transport/sim/explorer.hpp>

#include "support/catch.hpp"

#include <set>
#include <string>
#include <vector>

namespace test_transport_sim_explorer {

using namespace rdmacoro::detail::sim;

namespace {

/// Executions of three events, all of which can happen at first: the orders that an explorer takes.
struct executions {
    explicit executions(std::uint64_t nodes_of_last) {
        for (std::size_t n = 0; n < 3; ++n) events[n].key = n + 1;
        events[0].nodes = 1;
        events[1].nodes = 1;
        events[2].nodes = nodes_of_last;
    }

    /// One execution; its order, or nothing when it was given up.
    std::string run(explorer& decides) {
        decides.begin(1000);
        std::string order;
        std::vector<event*> enabled{&events[0], &events[1], &events[2]};
        while (!enabled.empty()) {
            event* chosen = decides.choose(std::span<event* const>(enabled));
            if (chosen == nullptr) return {};
            order += static_cast<char>('0' + chosen->key);
            std::erase(enabled, chosen);
        }
        return order;
    }
    std::multiset<std::string> all(explorer& decides) {
        std::multiset<std::string> orders;
        do {
            if (std::string order = run(decides); !order.empty()) orders.insert(order);
        } while (decides.advance());
        return orders;
    }

    event events[3];
};

}  // namespace

TEST_CASE("an explorer takes every order of events once, and with reduction one of each class") {
    executions dependent(1);
    explorer every(explorer::mode::exhaustive, false, 0);
    const auto orders = dependent.all(every);
    CHECK(orders.size() == 6);
    CHECK(std::set<std::string>(orders.begin(), orders.end()).size() == 6);

    executions apart(
        2);  // the third event is independent of the others: only the order of the first two counts
    explorer reduced(explorer::mode::exhaustive, true, 0);
    const auto classes = apart.all(reduced);
    CHECK(classes.size() < 6);
    bool forward = false;
    bool backward = false;
    for (const std::string& order : classes) {
        (order.find('1') < order.find('2') ? forward : backward) = true;
    }
    CHECK(forward);
    CHECK(backward);
}

TEST_CASE("a schedule that was recorded is followed again") {
    executions program(1);
    explorer first(explorer::mode::random, false, 0);
    first.seed(42);
    const std::string order = program.run(first);
    explorer again(explorer::mode::replay, false, 0);
    again.follow(first.schedule());
    CHECK(program.run(again) == order);
    CHECK(again.schedule() == first.schedule());
    CHECK_FALSE(again.strayed());
}

TEST_CASE("a program that does something else when it is run again is noticed") {
    executions program(1);
    explorer decides(explorer::mode::exhaustive, false, 0);
    static_cast<void>(program.run(decides));
    REQUIRE(decides.advance());
    program.events[0].key = 77;
    static_cast<void>(program.run(decides));
    CHECK(decides.strayed());
}

TEST_CASE("faults are chosen at most as often as one execution may have them") {
    explorer decides(explorer::mode::exhaustive, false, 1);
    unsigned most = 0;
    unsigned runs = 0;
    do {
        decides.begin(1000);
        unsigned faults = 0;
        for (int n = 0; n < 3; ++n) faults += decides.choose(2u);
        most = std::max(most, faults);
        ++runs;
    } while (decides.advance());
    CHECK(most == 1);
    CHECK(runs == 4);  // none, or one of three
}

TEST_CASE("an execution of too many steps calls for its end") {
    explorer decides(explorer::mode::random, false, 0);
    bool called = false;
    decides.when_endless([&] { called = true; });
    decides.begin(3);
    event e;
    event* const enabled[] = {&e};
    for (int n = 0; n < 2; ++n) CHECK(decides.choose(std::span<event* const>(enabled)) == &e);
    CHECK_FALSE(called);
    CHECK(decides.choose(std::span<event* const>(enabled)) == nullptr);
    CHECK(called);
}

}  // namespace test_transport_sim_explorer
