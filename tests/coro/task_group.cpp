#include <rdmacoro/coro/task_group.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_coro_task_group {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<> sleep_and_count(duration after, int& count) {
    co_await sleep_for(after);
    ++count;
}

task<> fail_after(duration after, const char* what) {
    co_await sleep_for(after);
    throw std::runtime_error(what);
}

struct server {
    int served = 0;
    task<> serve(int n) {
        served += n;
        co_return;
    }
};

}  // namespace

TEST_CASE("join waits for all children, those included that are spawned meanwhile") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        task_group group;
        int count = 0;
        group.spawn(sleep_and_count, 1s, std::ref(count));
        group.spawn([&]() -> task<> {
            co_await sleep_for(2s);
            group.spawn(sleep_and_count, 3s, std::ref(count));
        });
        CHECK(group.size() == 2);
        co_await group.join();
        CHECK(group.size() == 0);
        CHECK(count == 2);
        CHECK(on.now() == 5s);
        co_await group.join();
    }(world));
}

TEST_CASE("a child begins with the next turn, not inside spawn") {
    test::virtual_time world;
    world.run([]() -> task<> {
        task_group group;
        bool began = false;
        group.spawn([&began]() -> task<> {
            began = true;
            co_return;
        });
        CHECK_FALSE(began);
        co_await yield();
        CHECK(began);
    }());
}

TEST_CASE("callable and arguments live as long as the child") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto shared = std::make_shared<int>(5);
        int seen = 0;
        task_group group;
        {
            auto lambda = [kept = shared, &seen](std::string text, std::unique_ptr<int> box) -> task<> {
                co_await sleep_for(1s);
                seen = *kept + static_cast<int>(text.size()) + *box;
            };
            group.spawn(lambda, "four", std::make_unique<int>(1));
        }
        CHECK(shared.use_count() == 2);
        co_await group.join();
        CHECK(seen == 10);
        CHECK(shared.use_count() == 1);
    }());
}

TEST_CASE("members and functions that give any awaitable can be spawned") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        server object;
        task_group group;
        group.spawn(&server::serve, &object, 3);
        group.spawn(&server::serve, std::ref(object).get(), 100);  // a copy
        group.spawn([] { return sleep_for(2s); });
        group.spawn([]() -> task<int> { co_return 7; });  // the value is dropped
        co_await group.join();
        CHECK(object.served == 3);
        CHECK(on.now() == 2s);
    }(world));
}

TEST_CASE("the first error comes out of join once all have ended, and the others go on") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        task_group group;
        int count = 0;
        group.spawn(fail_after, 2s, "second");
        group.spawn(fail_after, 1s, "first");
        group.spawn(sleep_and_count, 3s, std::ref(count));
        std::string said;
        try {
            co_await group.join();
        } catch (const std::runtime_error& failed) {
            said = failed.what();
        }
        CHECK(said == "first");
        CHECK(count == 1);
        CHECK(on.now() == 3s);
        // The error was handed over; the group goes on.
        group.spawn(sleep_and_count, 1s, std::ref(count));
        co_await group.join();
        CHECK(count == 2);
    }(world));
}

TEST_CASE("a group of parts of one job stops the others when one fails") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        task_group group(on_child_error::stop_others);
        int count = 0;
        group.spawn(sleep_and_count, 1h, std::ref(count));
        group.spawn(fail_after, 1s, "failed");
        bool caught = false;
        try {
            co_await group.join();
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        CHECK(count == 0);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("children that stop when the group is asked to are no error") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        task_group group;
        int count = 0;
        for (int i = 0; i < 10; ++i) group.spawn(sleep_and_count, 1h, std::ref(count));
        co_await sleep_for(1s);
        group.request_stop();
        group.spawn(sleep_and_count, 1h, std::ref(count));  // begins with a stopped token
        co_await group.join();
        CHECK(count == 0);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("a child that is canceled by itself is an error") {
    test::virtual_time world;
    world.run([]() -> task<> {
        task_group group;
        group.spawn([]() -> task<> {
            detail::throw_error(errc::canceled);
            co_return;
        });
        const auto ended = co_await as_result(group.join());
        CHECK(ended.error() == errc::canceled);
    }());
}

TEST_CASE("a join that is canceled stops the children and waits for them") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        task_group group;
        int count = 0;
        group.spawn(sleep_and_count, 1h, std::ref(count));
        const auto ended = co_await as_result(timeout(group.join(), 1s));
        CHECK(ended.error() == errc::timed_out);
        CHECK(group.size() == 0);
        CHECK(count == 0);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("a canceled join of children that all finish anyway ends well") {
    test::virtual_time world;
    world.run([]() -> task<> {
        task_group group;
        local_stop_source stop;
        group.spawn([&stop]() -> task<> {
            stop.request_stop();
            co_return;
        });
        const auto ended = co_await as_result(with_stop(group.join(), stop.get_token()));
        CHECK(ended.has_value());
    }());
}

TEST_CASE("a join with a stopped token stops the children, and ends canceled") {
    test::virtual_time world;
    world.run([]() -> task<> {
        local_stop_source stop;
        stop.request_stop();
        task_group group;
        int count = 0;
        group.spawn(sleep_and_count, 1h, std::ref(count));
        const auto ended = co_await as_result(with_stop(group.join(), stop.get_token()));
        CHECK(ended.error() == errc::canceled);
        CHECK(group.size() == 0);
        const auto empty = co_await as_result(with_stop(group.join(), stop.get_token()));
        CHECK(empty.error() == errc::canceled);
    }());
}

TEST_CASE("a group stops with the token it was given") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        local_stop_source stop;
        task_group group(stop.get_token());
        int count = 0;
        group.spawn(sleep_and_count, 1h, std::ref(count));
        co_await sleep_for(1s);
        stop.request_stop();
        co_await group.join();
        CHECK(count == 0);
        CHECK(on.now() == 1s);
        CHECK(group.get_token().stop_requested());
    }(world));
}

TEST_CASE("coroutines that are ready while a group is destroyed go on in their order, also where a child of "
          "it uses up "
          "the slice") {
    test::virtual_time world;
    std::vector<int> order;
    bool group_ended = false;
    world.run([](test::virtual_time& on, std::vector<int>& list, bool& ended) -> task<> {
        task_group others;
        auto note = [&list](int n) -> task<> {
            list.push_back(n);
            co_return;
        };
        others.spawn([&]() -> task<> {
            task_group destroyed;
            others.spawn(note, 1);
            others.spawn(note, 2);
            destroyed.spawn([&]() -> task<> {
                on.time.advance(1ms);
                co_return;
            });
            others.spawn(note, 3);
            others.spawn(note, 4);
            ended = true;
            co_return;
        });
        co_await others.join();
    }(world, order, group_ended));
    CHECK(group_ended);
    CHECK(order == std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("destroying a group stops its children and waits for them, also during unwinding") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int ended = 0;
        auto child = [](int& count) -> task<> {
            struct at_end {
                int& count;
                ~at_end() { ++count; }
            } mark{count};
            co_await sleep_for(1h);
        };
        {
            task_group group;
            for (int i = 0; i < 5; ++i) group.spawn(child, std::ref(ended));
            co_await sleep_for(1s);
        }
        CHECK(ended == 5);
        bool caught = false;
        try {
            task_group group;
            for (int i = 0; i < 5; ++i) group.spawn(child, std::ref(ended));  // these have not even begun
            throw std::runtime_error("unwinds");
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        CHECK(ended == 10);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("groups in groups are torn down from the inside") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int leaves = 0;
        auto leaf = [](int& count) -> task<> {
            const auto ended = co_await as_result(sleep_for(1h));
            if (ended.error() == errc::canceled) ++count;
        };
        auto branch = [leaf](int& count) -> task<> {
            task_group inner;
            for (int i = 0; i < 3; ++i) inner.spawn(leaf, std::ref(count));
            co_await sleep_for(1h);  // thrown out of here: the group's destructor takes the leaves down
        };
        {
            task_group outer;
            for (int i = 0; i < 4; ++i) outer.spawn(branch, std::ref(leaves));
            co_await sleep_for(1s);
        }
        CHECK(leaves == 12);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("a destructor that waits does not resume whoever waits for it") {
    // The inner group's destructor runs the scheduler when the outer owner, whose group waits for the inner owner, is
    // ready too. Resumed on top of the inner one, it would wait for what is below it on the stack, for ever.
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int ended = 0;
        auto leaf = [](int& count) -> task<> {
            static_cast<void>(co_await as_result(sleep_for(1h)));
            for (int i = 0; i < 5; ++i) static_cast<void>(co_await as_result(sleep_for(0s)));
            ++count;
        };
        auto inner = [leaf](int& count) -> task<> {
            task_group group;
            group.spawn(leaf, std::ref(count));
            co_await sleep_for(1s);
        };
        auto outer = [inner](int& count) -> task<> {
            task_group group;
            group.spawn(inner, std::ref(count));
            co_await sleep_for(1s);  // due at the same moment, with the inner one's
        };
        task_group group;
        for (int i = 0; i < 3; ++i) group.spawn(outer, std::ref(ended));
        co_await group.join();
        CHECK(ended == 3);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("children that were put off run once their owner, inside the scope, waits for them") {
    test::virtual_time world;
    world.run([]() -> task<> {
        int ended = 0;
        auto busy = [](int& count) -> task<> {
            for (int i = 0; i < 20; ++i) static_cast<void>(co_await as_result(timeout(sleep_for(0s), 1s)));
            ++count;
        };
        auto owner = [busy](int& count) -> task<> {
            task_group own;  // not part of the outer group until it is joined
            own.spawn(busy, std::ref(count));
            auto job = start(busy(count));
            static_cast<void>(co_await as_result(sleep_for(1h)));
            static_cast<void>(co_await as_result(job));
            static_cast<void>(co_await as_result(own.join()));
        };
        {
            task_group outer;
            outer.spawn(owner, std::ref(ended));
            co_await yield();
            co_await yield();
        }
        CHECK(ended == 2);
    }());
}

TEST_CASE("a hundred thousand children over the life of a group leave nothing behind") {
    test::virtual_time world;
    world.run([]() -> task<> {
        task_group group;
        std::size_t warm = 0;
        int count = 0;
        for (int i = 0; i < 100000; ++i) {
            if (i == 100) warm = test::allocations();
            group.spawn(
                [](int& n) -> task<> {
                    ++n;
                    co_return;
                },
                std::ref(count));
            if (i % 10 == 9) co_await yield();
        }
        co_await group.join();
        CHECK(count == 100000);
        if (test::counts_allocations) CHECK(test::allocations() == warm);
    }());
}

TEST_CASE("spawning outside a scheduler is refused") {
    task_group group;
    int count = 0;
    CHECK_THROWS_AS(group.spawn(sleep_and_count, 1s, std::ref(count)), error);
    CHECK(group.size() == 0);
}

TEST_CASE("two joins at a time end the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        world.run([]() -> task<> {
            task_group group;
            int count = 0;
            group.spawn(sleep_and_count, 1h, std::ref(count));
            task_group other;
            other.spawn([&group]() -> task<> { co_await group.join(); });
            co_await yield();
            co_await group.join();
        }());
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("joined twice"));
}

namespace {
task<> two_schedulers(task_group& group, scheduler& other, bool joins) {
    int count = 0;
    group.spawn(sleep_and_count, 1h, std::ref(count));
    co_await yield();
    other.run([](task_group& of, bool is_joined) -> task<> {
        if (is_joined) {
            co_await of.join();
        } else {
            of.spawn([]() -> task<> { co_return; });
        }
    }(group, joins));
}
}  // namespace

TEST_CASE("a group that is used on two schedulers ends the process with a message") {
    for (const bool joins : {false, true}) {
        const test::death seen = test::dies([joins] {
            scheduler first;
            scheduler second;
            task_group group;
            first.run(two_schedulers(group, second, joins));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said,
                   test::contains("a task group with children on scheduler") &&
                       test::contains(joins ? "was joined on another" : "was given a task on another") &&
                       test::contains("make a group for each scheduler"));
    }
}

TEST_CASE("a group without children may go on with another scheduler") {
    task_group group;
    int count = 0;
    for (int n = 0; n < 2; ++n) {
        scheduler on;
        on.run([](task_group& of, int& counted) -> task<> {
            of.spawn(sleep_and_count, 1us, std::ref(counted));
            co_await of.join();
        }(group, count));
    }
    CHECK(count == 2);
}

TEST_CASE("a function posted before turn or before the scheduler's end may spawn") {
    for (const bool by_turn : {true, false}) {
        int count = 0;
        task_group group;
        const test::death seen = test::dies([&] {
            scheduler on;
            on.post([&] {
                if (scheduler::current() != &on) ::_exit(4);
                group.spawn(sleep_and_count, 0s, std::ref(count));
            });
            if (!by_turn) return;
            on.turn();
            on.run_until([&] { return group.size() == 0; });
        });
        // Before the scheduler's end the child could not run: that is fatal, but says so.
        CHECK(seen.aborted == !by_turn);
        if (by_turn) {
            CHECK(seen.status == 0);
        } else {
            CHECK_THAT(seen.said, test::contains("before child coroutines of it had ended"));
        }
    }
}

TEST_CASE("a scheduler that is destroyed before the children on it ends the process with a message") {
    const test::death seen = test::dies([] {
        task_group group;
        scheduler on;
        int count = 0;
        on.run([](task_group& in, int& n) -> task<> {
            in.spawn(sleep_and_count, 1h, std::ref(n));
            co_await yield();
        }(group, count));
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("before child coroutines of it had ended"));
}

namespace {
/// Waits for `let_go`. Without `bind`: neither its scheduler nor the stop token of the awaiting coroutine reach it.
struct gate {
    std::coroutine_handle<> waits{};
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { waits = awaiting; }
    void await_resume() const noexcept {}
    void let_go() { std::exchange(waits, {}).resume(); }
};
}  // namespace

TEST_CASE("a group that is destroyed waits for a child that no stop reaches, and for the coroutine that ends "
          "its wait") {
    test::virtual_time world;
    bool ended = false;
    world.run([](bool& flag) -> task<> {
        gate closed;
        task_group others;
        others.spawn([&closed]() -> task<> {
            while (!closed.waits) co_await yield();
            for (int n = 0; n < 5; ++n) co_await yield();
            closed.let_go();
        });
        {
            task_group group;
            group.spawn([&]() -> task<> {
                co_await closed;
                flag = true;
            });
            co_await yield();
        }
        CHECK(flag);
        co_await others.join();
    }(ended));
    CHECK(ended);
}

}  // namespace test_coro_task_group
