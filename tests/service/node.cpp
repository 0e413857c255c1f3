#include <rdmacoro/service/node.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/nodes.hpp"
#include "support/run.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace test_service_node {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Short pauses: tests wait for none of them.
node_options quick() {
    node_options o;
    o.connect_limit = 400ms;
    o.attempt_limit = 300ms;
    o.first_pause = 1ms;
    o.longest_pause = 10ms;
    return o;
}

template <class Endpoint>
task<> say_directly(Endpoint& end) {
    co_await end.send(std::string_view("directly"), 1);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("two nodes exchange messages by their ids", "", node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await two.listen(fresh_url<TestType>());
        one.add(two.card());
        auto there = one.peer(2);
        auto back = two.peer(1);
        for (int n = 0; n < 20; ++n) {
            co_await there.send(std::string_view("hello"), 7);
            std::string got(5, ' ');
            const received facts = co_await back.recv(got, 7);
            CHECK(facts.bytes == 5);
            CHECK(got == "hello");
            auto answering = start(back.ssend(std::string_view("world"), 8));
            const auto got7 = co_await hear(there, 8);
            CHECK(got7 == "world");
            co_await answering;
        }
        CHECK(one.connections() == 1);
        CHECK(two.connections() == 1);
        CHECK(there.born() == two.card().born);
    });
}

TEMPLATE_LIST_TEST_CASE("what is sent as soon as there is a connection does not overtake what waits for it",
                        "", node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await two.listen(fresh_url<TestType>());
        one.add(two.card());
        auto there = one.peer(2);
        constexpr int before = 50;
        constexpr int all = 200;
        std::vector<int> numbers(all);
        std::iota(numbers.begin(), numbers.end(), 0);
        int sent = 0;
        int sent_when_connected = -1;
        task_group sending;
        const auto send = [&there, &numbers, &sent](int n) -> task<> {
            co_await there.send(bytes_of(numbers[static_cast<std::size_t>(n)]), 1);
            ++sent;
        };
        // It waits for the connection first, and is resumed first.
        sending.spawn([&]() -> task<> {
            co_await there.connect();
            sent_when_connected = sent;
            for (int n = before; n < all; ++n) co_await send(n);
        });
        for (int n = 0; n < before; ++n) sending.spawn(send, n);
        auto back = two.peer(1);
        std::vector<int> got(all, -1);
        for (int& each : got) co_await back.recv(bytes_of(each), 1);
        co_await sending.join();
        CHECK(sent_when_connected == 0);
        CHECK(got == numbers);
    });
}

TEMPLATE_LIST_TEST_CASE("receives that wait for a connection take the messages in their order", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await two.listen(fresh_url<TestType>());
        one.add(two.card());
        auto there = one.peer(2);
        constexpr int before = 20;
        constexpr int all = before + 1;
        std::vector<int> numbers(all);
        std::iota(numbers.begin(), numbers.end(), 0);
        std::vector<int> got(all, -1);
        task_group receiving;
        const auto receive = [&there, &got](int n) -> task<> {
            co_await there.recv(bytes_of(got[static_cast<std::size_t>(n)]), 1);
        };
        receiving.spawn([&]() -> task<> {
            co_await there.connect();
            co_await receive(before);
        });
        for (int n = 0; n < before; ++n) receiving.spawn(receive, n);
        while (two.connections() == 0) co_await yield();
        auto back = two.peer(1);
        for (const int n : numbers) co_await back.send(bytes_of(n), 1);
        co_await receiving.join();
        CHECK(got == numbers);
    });
}

TEMPLATE_LIST_TEST_CASE("a send that is canceled while it waits for a connection holds no other up", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await two.listen(fresh_url<TestType>());
        auto there = one.peer(2);
        node_card card = two.card();
        one.add(card);
        local_stop_source stop;
        const auto canceled = [&]() -> task<> {
            const auto ended =
                co_await as_result(with_stop(there.send(std::string_view("never"), 1), stop.get_token()));
            CHECK(ended.error() == errc::canceled);
        };
        auto first = start(canceled());
        auto second = start(there.send(std::string_view("first"), 1));
        auto third = start(there.send(std::string_view("then"), 1));
        CHECK(one.connections() == 0);
        stop.request_stop();
        co_await first;
        auto back = two.peer(1);
        const auto one_text = co_await hear(back);
        const auto two_text = co_await hear(back);
        CHECK(one_text == "first");
        CHECK(two_text == "then");
        co_await second;
        co_await third;
    });
}

TEMPLATE_LIST_TEST_CASE("long messages go by the protocols of the endpoint", "", node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await two.listen(fresh_url<TestType>());
        one.add(two.card());
        const std::vector<int> sent(1 << 18, 42);
        std::vector<int> got(sent.size());
        auto there = one.peer(2);
        auto sending = start(there.send(sent, 3));
        co_await two.peer(1).recv(got, 3);
        co_await sending;
        CHECK(got == sent);
    });
}

TEMPLATE_LIST_TEST_CASE("once warm, messages between nodes allocate nothing", "", node_transports) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted");
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await two.listen(fresh_url<TestType>());
        one.add(two.card());
        auto there = one.peer(2);
        auto back = two.peer(1);
        std::size_t before = 0;
        for (int n = 0; n < 200; ++n) {
            if (n == 100) before = allocations();
            std::uint64_t number = static_cast<std::uint64_t>(n);
            std::uint64_t got = 0;
            co_await there.send(bytes_of(number), 1);
            co_await back.recv(bytes_of(got), 1);
            if (got != number) throw std::runtime_error("another message");
            auto waiting = start(there.recv(bytes_of(got), 2));
            co_await back.send(bytes_of(number), 2);
            co_await waiting;
        }
        CHECK(allocations() - before == 0);
    });
}

TEMPLATE_LIST_TEST_CASE("a connection's endpoint is given with its type, for the life of the connection", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        std::optional<node<TestType>> one(std::in_place, 1);
        node<TestType> two(2);
        co_await two.listen(fresh_url<TestType>());
        one->add(two.card());
        event ended;
        node_id from = 0;
        generation life{};
        two.on_connection([&](auto& peer, node_id id, generation born) -> task<> {
            from = id;
            life = born;
            for (;;) {
                const result<message> got = co_await as_result(peer.recv_lent());
                if (!got) break;
                co_await peer.send(got->bytes(), 9);
            }
            ended.set();
        });
        co_await say(one->peer(2), "echo");
        const auto got8 = co_await hear(one->peer(2));
        CHECK(got8 == "echo");
        CHECK(from == 1);
        CHECK(life == one->card().born);
        auto held = co_await one->peer(2).connect();
        CHECK(held.born() == two.card().born);
        const bool same = one->peer(2).visit([](auto& over) {
            return std::is_same_v<std::remove_cvref_t<decltype(over)>, endpoint<TestType>>;
        });
        CHECK(same);
        co_await one->close();
        one.reset();
        co_await ended.wait();
    });
}

TEMPLATE_LIST_TEST_CASE("a node that closes in good order has sent its messages, and is said to have left",
                        "", node_transports) {
    run_nodes([]() -> task<> {
        std::optional<node<TestType>> one(std::in_place, 1);
        node<TestType> two(2);
        auto changes = two.watch();
        co_await two.listen(fresh_url<TestType>());
        one->add(two.card());
        auto back = two.peer(1);
        for (int n = 0; n < 10; ++n) co_await say(one->peer(2), std::to_string(n));
        const generation life = one->card().born;
        co_await one->close();
        one.reset();
        for (int n = 0; n < 10; ++n) {
            const std::string got = co_await hear(back);
            CHECK(got == std::to_string(n));
        }
        const node_event came = co_await changes.next();
        CHECK(came.what == node_change::came);
        CHECK(came.id == 1);
        CHECK(came.born == life);
        const node_event left = co_await changes.next();
        CHECK(left.what == node_change::left);
        CHECK(left.born == life);
        // The next receive is told, once, that no more will come.
        const failure told = co_await failing(receive_any(back));
        CHECK(told.code == errc::closed);
        CHECK_THAT(told.text, contains("node 1 (generation " + to_string(life) + ")"));
    });
}

TEMPLATE_LIST_TEST_CASE("a receive that waits gets what a node says that comes, says it and leaves at once",
                        "", node_transports) {
    run_nodes([]() -> task<> {
        for (int round = 0; round < 100; ++round) {
            node<TestType> two(2, quick());
            co_await two.listen(fresh_url<TestType>());
            std::optional<node<TestType>> one(std::in_place, 1, quick());
            co_await one->listen(fresh_url<TestType>());
            one->add(two.card());
            two.add(one->card());
            auto waiting = start(hear(two.peer(1)));  // connects, while the other one does
            for (int n = 0; n < round; ++n) co_await yield();
            co_await say(one->peer(2), "all of it");
            co_await one->close();
            one.reset();
            const std::string got = co_await waiting;
            CHECK(got == "all of it");
        }
    });
}

namespace {

/// The clock of a machine so slow that each look at it finds a coroutine's time over: whatever could end at once waits its turn.
class slow_machine final : public clock {
public:
    time_point now() noexcept override {
        return monotonic_clock::instance().now() + ++looks_ * std::chrono::microseconds(100);
    }
    bool advance_to(time_point) noexcept override { return false; }

private:
    long looks_ = 0;
};

/// A node that answers, says something and leaves, all before the other one looks.
template <class T>
task<> answer_say_and_leave(listener<T>& at) {
    endpoint<T> end = co_await at.accept();
    std::array<std::byte, detail::longest_hello> room;
    static_cast<void>(co_await end.recv(std::span<std::byte>(room), detail::hello_tag));
    node_card mine;
    mine.id = 1;
    mine.born = generation{7};
    const auto answer = detail::encode_answer({detail::welcome::accepted, 0, mine});
    const std::byte leaves{static_cast<std::uint8_t>(detail::leave_reason::stopping)};
    co_await end.send(answer, detail::answer_tag);
    static_cast<void>(co_await end.recv({}, detail::taken_tag));
    auto saying = start(end.send(std::string_view("all of it"), 1));
    auto leaving = start(end.send(std::span<const std::byte>(&leaves, 1), detail::last_word_tag));
    co_await end.close();
    co_await saying;
    co_await leaving;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "a receive that waits gets what a node says that answers and leaves, on a slow machine, too", "",
    node_transports) {
    slow_machine slow;
    scheduler on{impatient{}, slow};
    on.run([]() -> task<> {
        // The scheduler learns that operations take long here: one of each resumption may end at once.
        event is_set;
        is_set.set();
        for (int n = 0; n < 64; ++n) co_await is_set.wait();
        bool others_run = false;
        auto other_turn = start([](bool& ran) -> task<> {
            co_await yield();
            ran = true;
        }(others_run));
        for (int n = 0; n < 2; ++n) co_await is_set.wait();
        REQUIRE(others_run);
        co_await other_turn;
        node_options patient;
        patient.connect_limit = patient.attempt_limit = patient.hello_limit = patient.close_limit = 1h;
        patient.mailbox.handshake_limit = 1h;
        for (int round = 0; round < 10; ++round) {
            node<TestType> two(2, patient);
            auto at = co_await listen<TestType>(fresh_url<TestType>());
            std::string url = at.address();
            if (url.find("://") == std::string::npos)
                url = std::string(std::string_view(TestType::name)) + "://" + url;
            two.add({.id = 1, .urls = {url}});
            auto waiting = start(hear(two.peer(1)));
            auto other = start(answer_say_and_leave<TestType>(at));
            const std::string got = co_await waiting;
            CHECK(got == "all of it");
            co_await other;
        }
    }());
}

TEMPLATE_LIST_TEST_CASE("a node that is restarted gets nothing that was meant for its former life", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1, quick());
        std::optional<node<TestType>> two(std::in_place, 2, quick());
        const std::string where = co_await two->listen(fresh_url<TestType>());
        one.add({.id = 2, .urls = {where}});  // any generation
        auto changes = one.watch();
        auto there = one.peer(2);
        co_await say(there, "first life");
        const generation first = two->card().born;
        CHECK(there.born() == first);
        auto answer = start(failing(receive_any(there)));
        std::vector<std::byte> unmatched(1 << 20);
        auto matched = start(
            failing([](auto p, auto* bytes) -> task<> { co_await p.ssend(*bytes, 2); }(there, &unmatched)));
        co_await sleep_for(1ms);
        two.reset();
        const failure waited = co_await answer;
        CHECK(waited.code == errc::peer_lost);
        CHECK_THAT(waited.text, contains("node 2 (generation " + to_string(first) + ")"));
        const failure unsent = co_await matched;
        CHECK(unsent.code == errc::peer_lost);
        CHECK_THAT(unsent.text, contains("generation " + to_string(first)));
        two.emplace(2, quick());
        co_await two->listen(where);
        co_await say(there, "second life");
        CHECK(there.born() == two->card().born);
        CHECK(there.born() != first);
        const auto got9 = co_await hear(two->peer(1));
        CHECK(got9 == "second life");
        const auto got1 = co_await changes.next();
        CHECK(got1.what == node_change::came);
        const auto got2 = co_await changes.next();
        CHECK(got2.born == first);
        const node_event again = co_await changes.next();
        CHECK(again.what == node_change::came);
        CHECK(again.born == two->card().born);
    });
}

TEMPLATE_LIST_TEST_CASE(
    "an answer that was lost with its connection is not waited for, though the node is back", "",
    node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1, quick());
        std::optional<node<TestType>> two(std::in_place, 2, quick());
        co_await one.listen(fresh_url<TestType>());
        const std::string where = co_await two->listen(fresh_url<TestType>());
        one.add({.id = 2, .urls = {where}});
        auto there = one.peer(2);
        co_await say(there, "a request");
        const auto got10 = co_await hear(two->peer(1));
        CHECK(got10 == "a request");
        two.reset();
        while (there.is_open()) co_await yield();
        two.emplace(2, quick());
        two->add(one.card());
        co_await say(two->peer(1), "from the second life");
        while (!there.is_open()) co_await yield();
        const failure told = co_await failing(receive_any(there));
        CHECK(told.code);
        const auto got11 = co_await hear(there);
        CHECK(got11 == "from the second life");
    });
}

TEMPLATE_LIST_TEST_CASE("nodes that connect to each other at once keep one connection and lose nothing", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        for (int round = 0; round < 60; ++round) {
            node<TestType> one(1), two(2);
            co_await one.listen(fresh_url<TestType>());
            co_await two.listen(fresh_url<TestType>());
            one.add(two.card());
            two.add(one.card());
            auto a = start(say(one.peer(2), "from one"));
            for (int n = 0; n < round % 12; ++n) co_await yield();
            auto b = start(say(two.peer(1), "from two"));
            co_await a;
            co_await b;
            const auto got12 = co_await hear(one.peer(2));
            CHECK(got12 == "from two");
            const auto got13 = co_await hear(two.peer(1));
            CHECK(got13 == "from one");
            CHECK(one.connections() == 1);
            CHECK(two.connections() == 1);
            co_await one.close();
        }
    });
}

TEMPLATE_LIST_TEST_CASE("with a limit of one connection a node speaks with three peers in turn", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node_options narrow;
        narrow.connections = 1;
        node<TestType> hub(1, narrow);
        node<TestType> a(2), b(3), c(4);
        co_await hub.listen(fresh_url<TestType>());
        const auto echo = [](auto& peer, node_id, generation) -> task<> {
            for (;;) {
                const result<message> got = co_await as_result(peer.recv_lent());
                if (!got) break;
                co_await peer.send(got->bytes(), 2);
            }
        };
        for (node<TestType>* leaf : {&a, &b, &c}) {
            leaf->on_connection(echo);
            co_await leaf->listen(fresh_url<TestType>());
            leaf->add(hub.card());
            hub.add(leaf->card());
        }
        for (int round = 0; round < 5; ++round) {
            for (node_id id = 2; id <= 4; ++id) {
                const std::string text = std::to_string(round) + '/' + std::to_string(id);
                co_await say(hub.peer(id), text);
                const auto got14 = co_await hear(hub.peer(id), 2);
                CHECK(got14 == text);
                CHECK(hub.connections() <= 1);
            }
        }
    });
}

TEMPLATE_LIST_TEST_CASE(
    "of several idle connections the one is closed that was not used for the longest time", "",
    node_transports) {
    run_nodes([]() -> task<> {
        node_options narrow;
        narrow.connections = 3;
        node<TestType> hub(1, narrow);
        std::vector<std::unique_ptr<node<TestType>>> leaves;
        for (node_id id = 2; id <= 5; ++id) {
            leaves.push_back(std::make_unique<node<TestType>>(id));
            co_await leaves.back()->listen(fresh_url<TestType>());
            hub.add(leaves.back()->card());
        }
        const auto leaf = [&](node_id id) -> node<TestType>& { return *leaves[id - 2]; };
        const auto open = [&] {
            std::string ids;
            for (node_id id = 2; id <= 5; ++id) {
                if (leaf(id).connections() != 0) ids += static_cast<char>('0' + id);
            }
            return ids;
        };
        const auto speak = [&](node_id id) -> task<> {
            co_await say(hub.peer(id), "hello");
            static_cast<void>(co_await hear(leaf(id).peer(1)));
        };
        for (const node_id id : {2U, 3U, 4U, 3U, 2U, 4U}) co_await speak(id);
        CHECK(open() == "234");
        co_await speak(5);  // for 3, which is neither the first that was made nor the last that was used
        co_await until([&] { return leaf(3).connections() == 0; });
        CHECK(open() == "245");
        // What is received is a use as well.
        co_await say(leaf(4).peer(1), "hello");
        static_cast<void>(co_await hear(hub.peer(4)));
        co_await speak(3);
        co_await until([&] { return leaf(2).connections() == 0; });
        CHECK(open() == "345");
        // And what goes over the endpoint itself, seen when a connection is looked for: it is later than all before it.
        {
            auto five = hub.peer(5);
            const node_hold held = five.hold();
            task<> direct = five.visit([](auto& end) -> task<> { return say_directly(end); });
            co_await std::move(direct);
            static_cast<void>(co_await hear(leaf(5).peer(1)));
        }
        co_await speak(2);  // for 4
        co_await until([&] { return leaf(4).connections() == 0; });
        CHECK(open() == "235");
        co_await hub.close();
    });
}

TEST_CASE("an operation that waits is not ended because its connection was idle") {
    run_nodes([]() -> task<> {
        node_options narrow = quick();
        narrow.connections = 1;
        node<shm> hub(1, narrow);
        node<shm> a(2), b(3);
        co_await hub.listen(fresh_url<shm>());
        co_await a.listen(fresh_url<shm>());
        co_await b.listen(fresh_url<shm>());
        for (node<shm>* leaf : {&a, &b}) {
            leaf->add(hub.card());
            hub.add(leaf->card());
        }
        co_await say(hub.peer(2), "hello");
        const auto got15 = co_await hear(a.peer(1));
        CHECK(got15 == "hello");
        auto waiting = start(hear(a.peer(1)));  // of the other side's, which the hub does not know
        co_await sleep_for(1ms);
        co_await say(hub.peer(3), "hello");  // closes the connection with a
        const auto got16 = co_await hear(b.peer(1));
        CHECK(got16 == "hello");
        CHECK(!waiting.done());
        co_await say(hub.peer(2), "again");
        const auto got17 = co_await waiting;
        CHECK(got17 == "again");
    });
}

TEST_CASE("receives that wait do not take each other's connections away") {
    run_nodes([]() -> task<> {
        node_options narrow = quick();
        narrow.connections = 1;
        node<shm> hub(1, narrow);
        auto changes = hub.watch();
        node<shm> a(2), b(3);
        co_await hub.listen(fresh_url<shm>());
        for (node<shm>* leaf : {&a, &b}) {
            co_await leaf->listen(fresh_url<shm>());
            leaf->add(hub.card());
            hub.add(leaf->card());
        }
        const auto hear_all = [](node_peer<shm> from, int& count) -> task<> {
            for (;;) {
                static_cast<void>(co_await from.recv_lent());
                ++count;
            }
        };
        int at_a = 0;
        int at_b = 0;
        task_group waiting;
        waiting.spawn(hear_all, a.peer(1), std::ref(at_a));
        co_await until([&] { return hub.connections() == 1; });
        waiting.spawn(hear_all, b.peer(1), std::ref(at_b));
        for (int round = 1; round <= 5; ++round) {
            co_await say(hub.peer(2), "hello");
            co_await say(hub.peer(3), "hello");
            co_await until([&] { return at_a == round && at_b == round; });
        }
        co_await sleep_for(50ms);  // in which they would
        waiting.request_stop();
        static_cast<void>(co_await as_result(waiting.join()));
        int came = 0;
        for (;;) {
            const auto change = co_await as_result(timeout(changes.next(), 1ms));
            if (!change) break;
            if (change->what == node_change::came) ++came;
        }
        CHECK(came <= 2 + 10);
    });
}

TEST_CASE("where no connection is idle the limit is an error that names it") {
    run_nodes([]() -> task<> {
        node_options narrow = quick();
        narrow.connections = 1;
        node<shm> hub(1, narrow);
        node<shm> a(2), b(3);
        co_await a.listen(fresh_url<shm>());
        co_await b.listen(fresh_url<shm>());
        hub.add(a.card());
        hub.add(b.card());
        auto first = hub.peer(2);
        const node_hold held = co_await first.connect();
        const failure refused = co_await failing(say(hub.peer(3), "no room"));
        CHECK(refused.code == errc::no_resources);
        CHECK_THAT(refused.text, contains("limit"));
        CHECK(first.is_open());
    });
}

TEST_CASE(
    "at its limit a node closes another idle connection soon where the longest idle peer stands still") {
    const std::string url = fresh_url<shm>();
    std::atomic<int> stage = 0;
    std::thread computing([&] {
        scheduler on;
        on.run([](std::string at, std::atomic<int>& now) -> task<> {
            node<shm> two(2);
            co_await two.listen(at);
            now = 1;
            static_cast<void>(co_await hear(two.peer(1)));
            now = 2;
            while (now != 3) std::this_thread::yield();  // it computes
        }(url, stage));
    });
    run_nodes([&]() -> task<> {
        while (stage != 1) co_await yield();
        node_options narrow;
        narrow.connections = 2;
        narrow.close_limit = 1h;  // for so long that peer keeps its own
        node<shm> hub(1, narrow);
        node<shm> three(3), four(4);
        co_await three.listen(fresh_url<shm>());
        co_await four.listen(fresh_url<shm>());
        hub.add({.id = 2, .urls = {url}});
        hub.add(three.card());
        hub.add(four.card());
        co_await say(hub.peer(2), "compute");
        while (stage != 2) co_await yield();
        auto heard_by_three = start(hear(three.peer(1)));
        co_await say(hub.peer(3), "hello");
        co_await heard_by_three;
        auto heard_by_four = start(hear(four.peer(1)));
        co_await say(hub.peer(4), "hello");
        CHECK(stage == 2);  // it still computes
        co_await heard_by_four;
        stage = 3;
    });
    stage = 3;
    computing.join();
}

#if RDMACORO_WITH_TCP
TEST_CASE("on one host shared memory is taken, whatever the order of the list") {
    run_nodes([]() -> task<> {
        node<tcp, shm> one(1), two(2);
        co_await two.listen(fresh_url<tcp>());
        co_await two.listen(fresh_url<shm>());
        one.add(two.card());
        co_await say(one.peer(2), "hello");
        const auto got18 = co_await hear(two.peer(1));
        CHECK(got18 == "hello");
        CHECK_THAT(one.explain(2), contains(two.card().urls[1] + ": taken"));
        CHECK_THAT(one.explain(2), contains("node 2"));
        CHECK_THAT(two.explain(1), contains("it has connected by itself, over shm"));
    });
}

TEST_CASE("on another host shared memory is not tried, and explain says why") {
    run_nodes([]() -> task<> {
        node<shm, tcp> one(1), two(2);
        co_await two.listen(fresh_url<shm>());
        co_await two.listen(fresh_url<tcp>());
        node_card elsewhere = two.card();
        elsewhere.host.boot[0] ^= 1;
        one.add(elsewhere);
        const failure lied = co_await failing(say(one.peer(2), "hello"));
        CHECK(lied.code == errc::address_invalid);
        CHECK_THAT(one.explain(2), contains("not tried, it is on another host"));
        CHECK_THAT(lied.text, contains("host"));  // which the node there does not confirm
    });
}

TEST_CASE("where the better transport does not connect the next one is tried") {
    run_nodes([]() -> task<> {
        node<shm, tcp> one(1), two(2);
        const std::string there = co_await two.listen(fresh_url<tcp>());
        node_card card = two.card();
        card.urls.insert(card.urls.begin(), fresh_url<shm>());  // nothing listens there
        one.add(card);
        co_await say(one.peer(2), "hello");
        const auto got19 = co_await hear(two.peer(1));
        CHECK(got19 == "hello");
        CHECK_THAT(one.explain(2), contains(card.urls[0] + ": ") && contains("nobody listens"));
        CHECK_THAT(one.explain(2), contains(there + ": taken"));
    });
}
#endif

TEST_CASE("a card that leads to another node ends the attempt with an error that says what differs") {
    run_nodes([]() -> task<> {
        node<shm> one(1, quick()), two(2), three(3);
        const std::string where = co_await two.listen(fresh_url<shm>());
        one.add({.id = 3, .urls = {where}});
        const failure id = co_await failing(say(one.peer(3), "for three"));
        CHECK(id.code == errc::address_invalid);
        CHECK_THAT(id.text, contains("has the id 2, not 3"));
        node_card former = two.card();
        former.born = generation{static_cast<std::uint64_t>(former.born) + 1};
        one.add(former);
        const failure life = co_await failing(say(one.peer(2), "for another life"));
        CHECK(life.code == errc::address_invalid);
        CHECK_THAT(life.text, contains(to_string(two.card().born)) && contains(to_string(former.born)));
        CHECK(two.connections() == 0);
        one.add(two.card());  // a card that is right works
        co_await say(one.peer(2), "for two");
        const auto got20 = co_await hear(two.peer(1));
        CHECK(got20 == "for two");
    });
}

TEST_CASE("a node that is not in the book is refused where none is admitted") {
    run_nodes([]() -> task<> {
        node_options closed_house = quick();
        closed_house.admits_strangers = false;
        node<shm> one(1, quick()), two(2, closed_house);
        co_await two.listen(fresh_url<shm>());
        one.add(two.card());
        const failure refused = co_await failing(say(one.peer(2), "let me in"));
        CHECK(refused.code == errc::address_invalid);
        CHECK_THAT(refused.text, contains("not in its address book"));
        two.add(one.card());
        co_await say(one.peer(2), "now");
        const auto got21 = co_await hear(two.peer(1));
        CHECK(got21 == "now");
    });
}

TEST_CASE("a node that cannot be reached is tried again, and then the error has each attempt") {
    run_nodes([]() -> task<> {
        node<shm> one(1, quick());
        auto changes = one.watch();
        const std::string nowhere = fresh_url<shm>();
        one.add({.id = 9, .urls = {nowhere}});
        const failure lost = co_await failing(say(one.peer(9), "hello"));
        CHECK(lost.code == errc::connection_refused);
        CHECK_THAT(lost.text, contains("node 9") && contains(nowhere));
        const node_event told = co_await changes.next();
        CHECK(told.what == node_change::failed);
        CHECK(told.id == 9);
        CHECK(told.why == errc::connection_refused);
        // One that comes late is found by the next message.
        node<shm> late(9);
        auto sending = start(say(one.peer(9), "late"));
        co_await sleep_for(5ms);
        co_await late.listen(nowhere);
        co_await sending;
        const auto got22 = co_await hear(late.peer(1));
        CHECK(got22 == "late");
    });
}

TEST_CASE("wrong ids and limits, unknown nodes and empty handles are errors that say so") {
    run_nodes([]() -> task<> {
        CHECK_THROWS_WITH(node<shm>(0), contains("0 is no node's id"));
        node_options none;
        none.connections = 0;
        CHECK_THROWS_WITH(node<shm>(1, none), contains("limit of 0"));
        for (duration node_options::* const limit :
             {&node_options::hello_limit, &node_options::attempt_limit, &node_options::connect_limit}) {
            for (const duration no_time : {duration(0), duration(-1)}) {
                node_options hasty;
                hasty.*limit = no_time;
                CHECK_THROWS_WITH(node<shm>(1, hasty), contains("is not more than 0"));
            }
        }
        node<shm> one(1);
        CHECK_THROWS_WITH(one.peer(1), contains("this node itself"));
        CHECK_THROWS_WITH(one.peer(0), contains("0 is no node's id"));
        CHECK_THROWS_AS(one.add({.id = 1, .urls = {}}), error);
        CHECK_THROWS_AS(one.add({.id = 2, .urls = {"no scheme"}}), error);
        const failure unknown = co_await failing(say(one.peer(77), "hello"));
        CHECK(unknown.code == errc::address_invalid);
        CHECK_THAT(unknown.text, contains("node 77 is not in the address book"));
        const failure empty = co_await failing(say(node<shm>::peer_type(), "hello"));
        CHECK(empty.code == errc::invalid_argument);
        const failure wrong = co_await failing(
            [](node<shm>& of) -> task<> { static_cast<void>(co_await of.listen("tcp://127.0.0.1:0")); }(one));
        CHECK(wrong.code == errc::address_invalid);
        CHECK_THROWS_AS(one.peer(5).visit([](auto&) {}), error);
        CHECK(!one.remove(5));
        CHECK_THAT(one.explain(1234), contains("never met"));
    });
}

TEST_CASE("a node whose card would be too long does not listen") {
    run_nodes([]() -> task<> {
        node<shm> one(1);
        const std::string url = fresh_url<shm>();
        const failure refused = co_await failing([](node<shm>& of, std::string at) -> task<> {
            static_cast<void>(co_await of.listen(at, "shm://" + std::string(10'000, 'x')));
        }(one, url));
        CHECK(refused.code == errc::invalid_argument);
        CHECK(one.card().urls.empty());
        const auto nobody = co_await as_result(connect<shm>(url));
        CHECK(nobody.error() == errc::connection_refused);
        const std::string now = co_await one.listen(url);
        CHECK(one.card().urls == std::vector<std::string>{now});
    });
}

TEST_CASE("a node that is destroyed ends what waits for it") {
    run_nodes([]() -> task<> {
        std::optional<node<shm>> one(std::in_place, 1);
        node<shm> two(2);
        co_await two.listen(fresh_url<shm>());
        one->add(two.card());
        one->add({.id = 3, .urls = {fresh_url<shm>()}});
        auto changes = one->watch();
        auto there = one->peer(2);
        const node_hold held = co_await there.connect();
        auto receiving = start(failing(receive_any(there)));
        auto connecting = start(failing(say(one->peer(3), "nowhere")));
        auto watching = start(failing([](node_watch& w) -> task<> {
            for (;;) static_cast<void>(co_await w.next());
        }(changes)));
        co_await sleep_for(1ms);
        one.reset();
        const auto got3 = co_await receiving;
        CHECK(got3.code == errc::closed);
        const auto got4 = co_await connecting;
        CHECK(got4.code == errc::closed);
        const auto got5 = co_await watching;
        CHECK(got5.code == errc::closed);
        const auto got6 = co_await failing(say(there, "after it"));
        CHECK(got6.code == errc::closed);
        CHECK(!there.is_open());
    });
}

TEST_CASE("what waits for a node ends when its task is asked to stop") {
    run_nodes([]() -> task<> {
        node<shm> one(1), two(2);
        co_await two.listen(fresh_url<shm>());
        one.add(two.card());
        one.add({.id = 3, .urls = {fresh_url<shm>()}});
        const auto receiving = co_await as_result(timeout(receive_any(one.peer(2)), 20ms));
        CHECK(receiving.error() == errc::timed_out);
        const auto connecting = co_await as_result(timeout(say(one.peer(3), "nowhere"), 20ms));
        CHECK(connecting.error() == errc::timed_out);
        co_await say(one.peer(2), "still there");
        const auto got23 = co_await hear(two.peer(1));
        CHECK(got23 == "still there");
    });
}

TEST_CASE("a node used on another scheduler is an error") {
    scheduler mine{idle::yield{}};
    scheduler other{idle::yield{}};
    std::optional<node<shm>> one;
    mine.run([](auto& made) -> task<> {
        made.emplace(1);
        made->add({.id = 2, .urls = {"shm://nowhere"}});
        co_return;
    }(one));
    const failure wrong = other.run(failing(say(one->peer(2), "hello")));
    CHECK(wrong.code == errc::invalid_argument);
    mine.run([](auto& made) -> task<> {
        made.reset();
        co_return;
    }(one));
}

}  // namespace test_service_node
