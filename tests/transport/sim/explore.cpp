#include <rdmacoro/transport/sim/explore.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/catch.hpp"
#include "support/recording_sink.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace test_transport_sim_explore {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Two nodes and a link between them without anything above it.
struct two_nodes {
    sim::domain a;
    sim::domain b;
    recording_sink at_a;
    recording_sink at_b;

    two_nodes(sim_world& in, const sim_options& options)
        : a(running(), of(in, options)), b(running(), of(in, options)) {}
    static scheduler& running() { return rdmacoro::detail::running_scheduler(); }
    static sim_options of(sim_world& in, sim_options options) {
        options.world = &in;
        return options;
    }
};

using link_type = sim::link<recording_sink>;

struct connected_pair {
    sim::connection a;
    sim::connection b;
};
task<connected_pair> connected(sim::domain& a, sim::domain& b) {
    auto listening = co_await b.listen("b");
    sim::connection near = co_await a.connect("b");
    sim::connection far = co_await listening.accept();
    co_return connected_pair{std::move(near), std::move(far)};
}

/// One actor at each of `nodes` nodes that share nothing, `steps` steps each. The order is the outcome.
struct independent_actors {
    unsigned nodes;
    unsigned steps;
    std::set<std::string>* orders;

    task<> operator()(exploration& x) {
        std::vector<std::unique_ptr<sim::domain>> domains;
        sim_options options;
        options.world = &x.world();
        for (unsigned n = 0; n < nodes; ++n)
            domains.push_back(std::make_unique<sim::domain>(rdmacoro::detail::running_scheduler(), options));
        std::string order;
        task_group group;
        x.begin();
        for (unsigned n = 0; n < nodes; ++n)
            group.spawn(walk, std::ref(*domains[n]), steps, static_cast<char>('a' + n), std::ref(order));
        co_await group.join();
        orders->insert(order);
    }
    static task<> walk(sim::domain& at, unsigned count, char name, std::string& order) {
        sim_actor self(at);
        for (unsigned n = 0; n < count; ++n) {
            co_await self.step();
            order += name;
        }
    }
};

/// Each node sends `count` messages to the other: what each has heard when it says what.
struct crossing {
    unsigned count;
    std::set<std::string>* outcomes;

    task<> operator()(exploration& x) {
        two_nodes nodes(x.world(), {});
        auto made = co_await connected(nodes.a, nodes.b);
        link_type a(std::move(made.a), nodes.at_a);
        link_type b(std::move(made.b), nodes.at_b);
        std::array<std::string, 2> heard;
        task_group group;
        x.begin();
        group.spawn(say, std::ref(nodes.a), std::ref(a), std::ref(nodes.at_a), count, std::ref(heard[0]));
        group.spawn(say, std::ref(nodes.b), std::ref(b), std::ref(nodes.at_b), count, std::ref(heard[1]));
        co_await group.join();
        outcomes->insert(heard[0] + "/" + heard[1]);
    }
    static task<> say(sim::domain& at, link_type& link, recording_sink& sink, unsigned count,
                      std::string& heard) {
        sim_actor self(at);
        for (unsigned n = 0; n < count; ++n) {
            co_await self.step();
            heard += std::to_string(sink.messages.size());
            static_cast<void>(link.post_copied(header_of(n), {}));
        }
    }
};

/// A get of memory that its owner takes back after so many messages without waiting for the reader: the planted race.
struct planted_race {
    bool waits;

    task<> operator()(exploration& x) {
        two_nodes nodes(x.world(), {});
        auto made = co_await connected(nodes.a, nodes.b);
        link_type a(std::move(made.a), nodes.at_a);
        link_type b(std::move(made.b), nodes.at_b);
        std::array<std::byte, 16> source{};
        std::array<std::byte, 16> target{};
        const region open = nodes.b.register_memory(source, access_rights::remote_read);
        struct : completion {
            event over;
        } got;
        got.done = [](completion& c, std::error_code) noexcept { static_cast<decltype(got)&>(c).over.set(); };
        sim_actor owner(nodes.b);
        x.begin();
        static_cast<void>(a.get(open.remote(), target, got));
        for (int step = 0; step < 3; ++step) co_await owner.step();
        if (waits) co_await got.over.wait();
        x.world().finished(source);
        co_await got.over.wait();
        x.world().borrowed(source);
    }
};

std::uint64_t factorial(unsigned n) { return n == 0 ? 1 : n * factorial(n - 1); }

}  // namespace

TEST_CASE("without reduction every order is taken exactly once") {
    for (const auto& [nodes, steps] :
         {std::pair{2u, 3u}, std::pair{3u, 2u}, std::pair{4u, 1u}, std::pair{1u, 5u}}) {
        CAPTURE(nodes, steps);
        std::set<std::string> orders;
        explore_options options;
        options.reduction = false;
        const explore_report r = explore(independent_actors{nodes, steps, &orders}, options);
        INFO(r.text());
        std::uint64_t expected = factorial(nodes * steps);
        for (unsigned n = 0; n < nodes; ++n) expected /= factorial(steps);
        CHECK(r.complete);
        CHECK_FALSE(r.failed);
        CHECK(r.executions == expected);
        CHECK(orders.size() == expected);
        CHECK(r.pruned == 0);
    }
}

TEST_CASE("orders of independent events are one with reduction") {
    std::set<std::string> orders;
    const explore_report r = explore(independent_actors{3, 2, &orders});
    INFO(r.text());
    CHECK(r.complete);
    CHECK(r.executions == 1);
}

TEST_CASE("reduction loses no outcome") {
    for (const unsigned count : {1u, 2u}) {
        CAPTURE(count);
        std::set<std::string> all;
        std::set<std::string> reduced;
        explore_options options;
        options.reduction = false;
        const explore_report whole = explore(crossing{count, &all}, options);
        const explore_report less = explore(crossing{count, &reduced});
        INFO(whole.text() << "; " << less.text());
        CHECK(whole.complete);
        CHECK(less.complete);
        CHECK(reduced == all);
        CHECK(all.size() > 1);
        CHECK(less.executions < whole.executions);
    }
}

TEST_CASE("a planted race is found, told step by step, and found again by its schedule") {
    const explore_report found = explore(planted_race{false});
    INFO(found.text());
    REQUIRE(found.failed);
    CHECK_THAT(found.failure, contains("its owner has back"));
    CHECK_FALSE(found.schedule.empty());
    CHECK_THAT(found.command, contains(found.replay));
    explore_options options;
    options.replay = found.replay;
    const explore_report again = explore(planted_race{false}, options);
    CHECK(again.failed);
    CHECK(again.failure == found.failure);
    CHECK(again.executions == 1);
    CHECK(again.schedule == found.schedule);
    CHECK(again.replay == found.replay);
    // The same program without the race.
    const explore_report good = explore(planted_race{true});
    INFO(good.text());
    CHECK(good.complete);
    CHECK_FALSE(good.failed);
}

TEST_CASE("chance finds the planted race, too, and tells how to find it again") {
    explore_options options;
    options.random_executions = 1000;
    const explore_report found = explore(planted_race{false}, options);
    REQUIRE(found.failed);
    CHECK_FALSE(found.complete);
    explore_options replayed;
    replayed.replay = found.replay;
    CHECK(explore(planted_race{false}, replayed).failed);
}

TEST_CASE("a program that waits for ever is a failure") {
    const explore_report r = explore([](exploration& x) -> task<> {
        sim_options options;
        options.world = &x.world();
        sim::domain here(rdmacoro::detail::running_scheduler(), options);
        x.begin();
        event never;
        co_await never.wait();
    });
    CHECK(r.failed);
    CHECK_THAT(r.failure, contains("deadlock"));
}

TEST_CASE("a program that never ends is a failure") {
    explore_options options;
    options.most_steps = 100;
    const explore_report r = explore(
        [](exploration& x) -> task<> {
            sim_options of;
            of.world = &x.world();
            sim::domain here(rdmacoro::detail::running_scheduler(), of);
            sim_actor self(here);
            x.begin();
            for (;;) co_await self.step();
        },
        options);
    CHECK(r.failed);
    CHECK_THAT(r.failure, contains("livelock"));
}

TEST_CASE("an exploration that reaches its limit says that it is not complete") {
    std::set<std::string> orders;
    explore_options options;
    options.reduction = false;
    options.most_executions = 10;
    const explore_report r = explore(independent_actors{3, 3, &orders}, options);
    CHECK(r.executions == 10);
    CHECK_FALSE(r.complete);
    CHECK_FALSE(r.failed);
}

TEST_CASE("what throws fails, and so does what the program says itself") {
    const explore_report thrown = explore([](exploration&) -> task<> {
        throw error(errc::truncated);
        co_return;
    });
    CHECK_THAT(thrown.failure, contains("longer than the receive buffer"));
    const explore_report said = explore([](exploration& x) -> task<> {
        x.check(false, "not so");
        co_return;
    });
    CHECK(said.failure == "not so");
}

namespace {
/// A whole conversation: `count` sends each way over endpoints.
template <unsigned Count>
task<> conversation(exploration& x) {
    two_nodes nodes(x.world(), {});
    auto listening = co_await listen<sim>(nodes.b, "b");
    auto accepting = start(listening.accept());
    auto a = co_await connect<sim>(nodes.a, "b");
    auto b = co_await accepting;
    const auto talk = [](sim::domain& at, endpoint<sim>& through, exploration& of) -> task<> {
        sim_actor self(at);
        for (std::uint64_t n = 0; n < Count; ++n) {
            co_await self.step();
            co_await through.send(std::as_bytes(std::span(&n, 1)), 1);
        }
        for (std::uint64_t n = 0; n < Count; ++n) {
            std::uint64_t got = 99;
            co_await through.recv(std::as_writable_bytes(std::span(&got, 1)), 1);
            of.check(got == n, "out of order");
        }
    };
    task_group group;
    x.begin();
    group.spawn(talk, std::ref(nodes.a), std::ref(a), std::ref(x));
    group.spawn(talk, std::ref(nodes.b), std::ref(b), std::ref(x));
    co_await group.join();
    x.end();
}
}  // namespace

TEST_CASE("messages of endpoints keep their order in every order of events") {
    const explore_report r = explore(conversation<2>);
    INFO(r.text());
    CHECK(r.complete);
    CHECK_FALSE(r.failed);
    CHECK(r.executions > 1);
}

}  // namespace test_transport_sim_explore
