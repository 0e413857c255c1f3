#include <rdmacoro/coro/start.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <memory>
#include <stdexcept>

namespace test_coro_start {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<int> later(int n, duration after) {
    co_await sleep_for(after);
    co_return n;
}

task<> fails_later(duration after) {
    co_await sleep_for(after);
    throw std::runtime_error("later");
}

}  // namespace

TEST_CASE("a started operation runs while its owner does something else") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        auto first = start(sleep_for(3s));
        auto second = start(sleep_for(5s));
        CHECK_FALSE(first.done());
        co_await sleep_for(4s);
        CHECK(first.done());
        CHECK_FALSE(second.done());
        co_await first;
        co_await second;
        CHECK(on.now() == 5s);
    }(world));
}

TEST_CASE("a started task runs at once until it first suspends") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        bool began = false;
        auto body = [](bool& flag) -> task<std::unique_ptr<int>> {
            flag = true;
            co_await sleep_for(2s);
            co_return std::make_unique<int>(3);
        };
        auto pending = start(body(began));
        CHECK(began);
        CHECK_FALSE(pending.done());
        co_await sleep_for(1s);
        const std::unique_ptr<int> got = co_await pending;
        CHECK(*got == 3);
        CHECK(on.now() == 2s);
    }(world));
}

TEST_CASE("a started task that ends at once is done") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto quick = []() -> task<int> { co_return 1; };
        auto pending = start(quick());
        CHECK(pending.done());
        const int got = co_await std::move(pending);
        CHECK(got == 1);
    }());
}

TEST_CASE("the exception of a started task comes out where it is awaited") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto pending = start(fails_later(1s));
        co_await sleep_for(2s);
        CHECK(pending.done());
        bool caught = false;
        try {
            co_await pending;
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
    }());
}

TEST_CASE("other awaitables start too") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        auto pending = start(timeout(later(1, 1h), 2s));
        const auto got = co_await as_result(pending);
        CHECK(got.error() == errc::timed_out);
        CHECK(on.now() == 2s);
    }(world));
}

TEST_CASE("the token of the task that awaits stops a started operation or task") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        auto operation = start(sleep_for(1h));
        auto job = start(later(1, 1h));
        local_stop_source stop;
        task_group group;
        group.spawn([&stop]() -> task<> {
            co_await sleep_for(1s);
            stop.request_stop();
        });
        const auto first = co_await as_result(with_stop(operation, stop.get_token()));
        CHECK(first.error() == errc::canceled);
        const auto second = co_await as_result(with_stop(job, stop.get_token()));
        CHECK(second.error() == errc::canceled);
        CHECK(on.now() == 1s);
        co_await group.join();
    }(world));
}

TEST_CASE("a timeout on a started operation cancels it") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        auto pending = start(sleep_for(1h));
        const auto got = co_await as_result(timeout(pending, 1s));
        CHECK(got.error() == errc::timed_out);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("an exception that unwinds past started work cancels it and waits for it") {
    test::virtual_time world;
    bool operation_ended = false;
    world.run([](test::virtual_time& on, bool& ended) -> task<> {
        auto inner = [](bool& flag) -> task<> {
            struct at_end {
                bool& flag;
                ~at_end() { flag = true; }
            };
            auto body = [](bool& f) -> task<> {
                at_end mark{f};
                co_await sleep_for(1h);
            };
            auto job = start(body(flag));
            auto operation = start(sleep_for(1h));
            co_await fails_later(1s);
            co_await operation;
            co_await job;
        };
        bool caught = false;
        try {
            co_await inner(ended);
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        CHECK(on.now() == 1s);
    }(world, operation_ended));
    CHECK(operation_ended);
}

TEST_CASE("a started operation that is never awaited ends the process, whether it has ended or not") {
    for (const duration waited : {0s, 2s}) {
        const test::death seen = test::dies([waited] {
            test::virtual_time world;
            world.run([](duration after) -> task<> {
                auto pending = start(sleep_for(1s));
                co_await sleep_for(after);
            }(waited));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, test::contains("never awaited"));
    }
}

TEST_CASE("a started task that is never awaited ends the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        world.run([]() -> task<> {
            auto pending = start(later(1, 1s));
            co_return;
        }());
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("never awaited"));
}

TEST_CASE("starting a task outside a scheduler is refused") {
    CHECK_THROWS_AS(static_cast<void>(start(later(1, 1s))), error);
}

TEST_CASE("after warm-up starting allocates nothing") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    const std::size_t counted = world.run([]() -> task<std::size_t> {
        std::size_t before = 0;
        for (int i = 0; i < 20; ++i) {
            if (i == 10) before = test::allocations();
            auto operation = start(sleep_for(1s));
            auto job = start(later(i, 1s));
            co_await operation;
            co_await job;
        }
        co_return test::allocations() - before;
    }());
    CHECK(counted == 0);
}

TEST_CASE("starting an operation outside a scheduler is refused, unless it knows its own") {
    CHECK_THROWS_AS(static_cast<void>(start(sleep_for(1s))), error);
    event never;
    try {
        const auto pending = start(never.wait());
        FAIL("not refused");
    } catch (const error& refused) {
        CHECK(refused.code() == errc::invalid_argument);
    }
    scheduler on;
    thread_channel<int> numbers(on, 2);
    REQUIRE(numbers.try_push(7));
    auto pending = start(numbers.receive());
    CHECK(pending.done());
    CHECK(pending.take_result().value() == 7);
}

TEST_CASE(
    "a started operation that is abandoned while an exception unwinds something else ends the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        struct runs_at_end {
            test::virtual_time& on;
            ~runs_at_end() {
                on.run([]() -> task<> {
                    auto pending = start(sleep_for(1s));
                    co_return;
                }());
            }
        };
        const runs_at_end last{world};
        throw std::runtime_error("unwinds");
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("never awaited"));
}

TEST_CASE("a started task that has ended keeps its value while others have their turn") {
    test::virtual_time world;
    world.run([]() -> task<> {
        event is_set(true);
        int others = 0;
        bool stop = false;
        task_group beside;
        beside.spawn([&]() -> task<> {
            while (!stop) {
                ++others;
                co_await yield();
            }
        });
        const auto one = [&](int n) -> task<int> {
            co_await is_set.wait();
            co_return n;
        };
        int suspended = 0;
        for (int n = 0; n < 3000; ++n) {
            auto begun = start(one(n));
            REQUIRE(begun.done());
            const int before = others;
            // A limit of none does not take the value of what has ended.
            const auto got = co_await as_result(timeout(begun, 0s));
            REQUIRE(got.has_value());
            CHECK(*got == n);
            if (others != before) ++suspended;
        }
        CHECK(suspended >= 3);
        CHECK(suspended <= 300);
        stop = true;
        co_await beside.join();
    }());
}

TEST_CASE("a started task that has ended is awaited in a destructor that waits for its scope") {
    test::virtual_time world;
    world.run([]() -> task<> {
        event is_set(true);
        int awaited = 0;
        const auto one = [&]() -> task<> { co_await is_set.wait(); };
        {
            task_group scope;
            scope.spawn([&]() -> task<> {
                for (; awaited < 3000; ++awaited) co_await start(one());
            });
            co_await yield();
            CHECK(awaited < 3000);  // it waits for its next turn, in the middle of an await
        }
        CHECK(awaited == 3000);
    }());
}

}  // namespace test_coro_start
