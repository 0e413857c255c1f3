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

/// Each node sends `count` messages to the other: what each has heard when it says what. It fails with the outcome that is sought.
struct crossing {
    unsigned count;
    std::set<std::string>* outcomes = nullptr;
    std::string sought{};

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
        const std::string outcome = heard[0] + "/" + heard[1];
        if (outcomes != nullptr) outcomes->insert(outcome);
        x.check(outcome != sought, "it is what is sought");
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

/// A message from memory that its sender changes before the network is done with it. It fails where the content that arrives is the
/// one that is sought: an execution that is given up as known counts for nothing, and only a failure tells it from the others.
struct early_change {
    sim_options network;
    std::string sought;                        ///< empty: none
    std::set<std::string>* arrived = nullptr;  ///< also in executions that are given up
    bool says = false;  ///< the sender has the memory back when it changes it, which the world then reports

    task<> operator()(exploration& x) {
        two_nodes nodes(x.world(), network);
        auto made = co_await connected(nodes.a, nodes.b);
        link_type a(std::move(made.a), nodes.at_a);
        link_type b(std::move(made.b), nodes.at_b);
        std::string text = "oooooo";
        const auto bytes = std::as_bytes(std::span(text));
        struct : completion {
            event over;
        } sent;
        sent.done = [](completion& c, std::error_code) noexcept {
            static_cast<decltype(sent)&>(c).over.set();
        };
        event came;
        nodes.at_b.on_message = [&](const recorded_message&) { came.set(); };
        sim_actor sender(nodes.a);
        x.begin();
        x.check(a.post(header_of(0), const_buffers(bytes), sent) == post_result::posted, "it is copied");
        co_await sender.step();
        if (says) x.world().finished(bytes);
        text = "nnnnnn";
        co_await sent.over.wait();
        if (says) x.world().borrowed(bytes);
        co_await came.wait();
        const std::vector<std::byte>& got = nodes.at_b.messages.front().payload;
        const std::string content(reinterpret_cast<const char*>(got.data()), got.size());
        if (arrived != nullptr) arrived->insert(content);
        x.check(sought.empty() || content != sought, "it is what is sought");
    }
};
sim_options borrowing_in_pieces(std::size_t piece) {
    sim_options network;
    network.staged_bytes = 0;
    if (piece != 0) network.announces_above = 0;
    network.piece_bytes = piece;
    return network;
}

/// Two messages; the network may break as either is sent. It fails where it breaks at the second and so many have come.
struct broken_by_a_post {
    std::size_t sought;

    task<> operator()(exploration& x) {
        two_nodes nodes(x.world(), {});
        auto made = co_await connected(nodes.a, nodes.b);
        link_type a(std::move(made.a), nodes.at_a);
        link_type b(std::move(made.b), nodes.at_b);
        sim_actor sender(nodes.a);
        x.begin();
        unsigned sent = 0;
        while (sent < 2 && x.world().counts().drops == 0) {
            co_await sender.step();
            static_cast<void>(a.post_copied(header_of(sent), {}));
            ++sent;
        }
        co_await sleep_for(std::chrono::seconds(1));  // nothing is under way
        const bool at_the_second = sent == 2 && x.world().counts().drops != 0;
        x.check(!at_the_second || nodes.at_b.messages.size() != sought, "it is what is sought");
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
        explore_options options;
        options.reduction = false;
        const explore_report whole = explore(crossing{count, &all}, options);
        const explore_report less = explore(crossing{count});
        INFO(whole.text() << "; " << less.text());
        CHECK(whole.complete);
        CHECK(less.complete);
        CHECK(all.size() > 1);
        // What an execution that is given up comes to does not count.
        for (const std::string& outcome : all)
            CHECK(explore(crossing{count, nullptr, outcome}).failure == "it is what is sought");
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

TEST_CASE("a message from memory that its sender changes arrives with every content that an order gives it") {
    // Whole, and in pieces of two bytes.
    using texts = std::set<std::string>;
    for (const auto& [piece, contents] : {std::pair{0u, texts{"oooooo", "nnnnnn"}},
                                          std::pair{2u, texts{"oooooo", "oooonn", "oonnnn", "nnnnnn"}}}) {
        CAPTURE(piece);
        const sim_options network = borrowing_in_pieces(piece);
        texts all;
        explore_options every_order;
        every_order.reduction = false;
        const explore_report whole = explore(early_change{network, "", &all}, every_order);
        INFO(whole.text());
        CHECK(whole.complete);
        CHECK(whole.pruned == 0);
        CHECK(all == contents);
        for (const std::string& content : contents) {
            CAPTURE(content);
            CHECK(explore(early_change{network, content}).failure == "it is what is sought");
        }
        const explore_report less = explore(early_change{network, ""});
        INFO(less.text());
        CHECK(less.complete);
        CHECK(less.executions <= whole.executions);
    }
}

TEST_CASE("memory that its sender takes back before its message has left is a race that is found") {
    for (const std::size_t piece : {0u, 2u}) {
        CAPTURE(piece);
        const early_change program{borrowing_in_pieces(piece), "", nullptr, true};
        const explore_report found = explore(program);
        INFO(found.text());
        REQUIRE(found.failed);
        CHECK_THAT(found.failure, contains("sending a message touches memory that its owner has back"));
        explore_options again;
        again.replay = found.replay;
        CHECK(explore(program, again).failure == found.failure);
    }
}

TEST_CASE("a message is under way or has come when a post breaks its link") {
    explore_options options;
    options.world.faults.dropped = 1;
    options.faults = 1;
    for (const bool reduction : {false, true}) {
        CAPTURE(reduction);
        options.reduction = reduction;
        CHECK(explore(broken_by_a_post{0}, options).failure == "it is what is sought");
        CHECK(explore(broken_by_a_post{1}, options).failure == "it is what is sought");
        const explore_report r = explore(broken_by_a_post{2}, options);
        INFO(r.text());
        CHECK(r.complete);
        CHECK_FALSE(r.failed);
    }
}

TEST_CASE("a timer expires only when no event can happen") {
    const explore_report r = explore([](exploration& x) -> task<> {
        sim_options of;
        of.world = &x.world();
        sim::domain here(rdmacoro::detail::running_scheduler(), of);
        unsigned left = 3;
        const auto walk = [](sim::domain& at, unsigned& steps) -> task<> {
            sim_actor self(at);
            for (; steps > 0; --steps) co_await self.step();
        };
        task_group group;
        x.begin();
        group.spawn(walk, std::ref(here), std::ref(left));
        co_await sleep_for(std::chrono::nanoseconds(1));
        x.check(left == 0, "the timer has expired and a step has not been taken");
        co_await group.join();
    });
    INFO(r.text());
    CHECK(r.complete);
    CHECK(r.steps == 3);
    CHECK_FALSE(r.failed);
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
