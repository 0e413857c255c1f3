#include <rdmacoro/coro/task.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <memory>
#include <string>
#include <vector>

namespace test_coro_task {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

struct failure {
    int number;
};

task<int> number(int n) { co_return n; }

task<int> depth(int levels) {
    if (levels == 0) co_return 0;
    const int below = co_await depth(levels - 1);
    co_return below + 1;
}

task<int> depth_that_fails(int levels) {
    if (levels == 0) throw failure{7};
    co_return co_await depth_that_fails(levels - 1);
}

task<int> depth_that_sleeps(int levels) {
    if (levels == 0) {
        co_await sleep_for(1s);
        co_return 0;
    }
    const int below = co_await depth_that_sleeps(levels - 1);
    co_return below + 1;
}

task<std::unique_ptr<int>> boxed(int n) { co_return std::make_unique<int>(n); }
task<int&> itself(int& n) { co_return n; }

struct no_default {
    explicit no_default(int n) : number(n) {}
    int number;
};
task<no_default> made(int n) { co_return no_default(n); }

}  // namespace

TEST_CASE("a task does not begin before it is awaited") {
    test::virtual_time world;
    bool began = false;
    world.run([](bool& flag) -> task<> {
        auto body = [](bool& b) -> task<> {
            b = true;
            co_return;
        };
        task<> later = body(flag);
        CHECK_FALSE(flag);
        co_await std::move(later);
        CHECK(flag);
    }(began));
    CHECK(began);
}

TEST_CASE("a task that is never awaited is destroyed with its arguments") {
    auto shared = std::make_shared<int>(1);
    {
        auto holder = [](std::shared_ptr<int> kept) -> task<int> { co_return *kept; };
        task<int> unused = holder(shared);
        CHECK(shared.use_count() == 2);
        task<int> moved = std::move(unused);
        moved = holder(shared);
        CHECK(shared.use_count() == 2);
    }
    CHECK(shared.use_count() == 1);
}

TEST_CASE("a task that has given up its frame owns none, and leaves it to the caller") {
    const auto kept = std::make_shared<int>(7);
    auto made = [](std::shared_ptr<int> held) -> task<int> { co_return *held; }(kept);
    const auto frame = made.release();
    CHECK_FALSE(made.handle());
    { const auto ends = std::move(made); }
    CHECK(kept.use_count() == 2);
    frame.destroy();
    CHECK(kept.use_count() == 1);
}

TEST_CASE("a task gives values, references, move-only things and things without a default") {
    test::virtual_time world;
    int original = 5;
    world.run([](int& target) -> task<> {
        const int plain = co_await number(3);
        CHECK(plain == 3);
        const std::unique_ptr<int> box = co_await boxed(4);
        CHECK(*box == 4);
        int& same = co_await itself(target);
        CHECK(&same == &target);
        same = 6;
        const no_default other = co_await made(9);
        CHECK(other.number == 9);
    }(original));
    CHECK(original == 6);
}

TEST_CASE("run gives references and move-only things too") {
    test::virtual_time world;
    int original = 5;
    CHECK(&world.run(itself(original)) == &original);
    CHECK(*world.run(boxed(8)) == 8);
}

TEST_CASE("an exception passes through tasks up to the task that catches it") {
    test::virtual_time world;
    const int caught = world.run([]() -> task<int> {
        try {
            co_await depth_that_fails(20);
        } catch (const failure& thrown) {
            co_return thrown.number;
        }
        co_return 0;
    }());
    CHECK(caught == 7);
    CHECK_THROWS_AS(world.run(depth_that_fails(3)), failure);
}

TEST_CASE("arguments and locals are destroyed when the awaiting expression ends") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto shared = std::make_shared<int>(1);
        auto holder = [](std::shared_ptr<int> kept) -> task<int> {
            auto local = kept;
            co_return static_cast<int>(local.use_count());
        };
        const int inside = co_await holder(shared);
        CHECK(inside == 3);
        CHECK(shared.use_count() == 1);
    }());
}

TEST_CASE("a chain of a hundred thousand tasks uses no stack") {
    test::virtual_time world;
    CHECK(world.run(depth(100000)) == 100000);
}

TEST_CASE("a chain that suspends at its end uses no stack on the way back") {
    test::virtual_time world;
    CHECK(world.run(depth_that_sleeps(100000)) == 100000);
}

TEST_CASE("a million tasks that end at once, one after another, use no stack") {
    test::virtual_time world;
    const long sum = world.run([]() -> task<long> {
        long total = 0;
        for (int i = 0; i < 1000000; ++i) total += co_await number(1);
        co_return total;
    }());
    CHECK(sum == 1000000);
}

TEST_CASE("after warm-up calling and awaiting a task allocates nothing") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    const std::size_t counted = world.run([]() -> task<std::size_t> {
        co_await number(1);
        const std::size_t before = test::allocations();
        for (int i = 0; i < 100; ++i) co_await number(i);
        co_return test::allocations() - before;
    }());
    CHECK(counted == 0);
}

namespace {
task<> throws_at_once() {
    throw error(errc::closed, "at once");
    co_return;
}
task<> fails_soon() { co_await throws_at_once(); }
}  // namespace

TEST_CASE("tasks that fail at once let others have their turn now and then, and lose nothing") {
    test::virtual_time world;
    for (const bool is_stopped : {false, true}) {
        int failed = 0;
        world.run([](bool stops, int& count) -> task<> {
            local_stop_source scope;
            if (stops) scope.request_stop();
            int others = 0;
            task_group beside;
            beside.spawn([&others]() -> task<> {
                for (; others < 4; ++others) co_await yield();
            });
            const auto loop = [&count]() -> task<> {
                for (int n = 0; n < 5000; ++n) {
                    const auto ended = co_await as_result(fails_soon());
                    if (ended.error() == errc::closed) ++count;
                }
            };
            co_await with_stop(loop(), scope.get_token());
            CHECK(others == 4);
            co_await beside.join();
        }(is_stopped, failed));
        CHECK(failed == 5000);
    }
}

TEST_CASE("a task that a scheduler runs may fail after much that has failed at once") {
    test::virtual_time world;
    const auto fail = [](int before) -> task<> {
        for (int n = 0; n < before; ++n) static_cast<void>(co_await as_result(throws_at_once()));
        throw error(errc::truncated, "the last");
    };
    for (int before = 480; before < 600; ++before) CHECK_THROWS_AS(world.run(fail(before)), error);
    bool runs_on = false;
    world.run([](bool& runs) -> task<> {
        co_await yield();
        runs = true;
    }(runs_on));
    CHECK(runs_on);
}

TEST_CASE("awaiting a task that holds no coroutine, or one that has ended, ends the process with a message") {
    enum class wrong { made_empty, moved_from, ended };
    for (const wrong how : {wrong::made_empty, wrong::moved_from, wrong::ended}) {
        const test::death seen = test::dies([how] {
            test::virtual_time world;
            world.run([](wrong which) -> task<> {
                task<int> awaited = which == wrong::made_empty ? task<int>() : number(1);
                if (which == wrong::moved_from) task<int> elsewhere = std::move(awaited);
                if (which == wrong::ended) co_await std::move(awaited);
                co_await std::move(awaited);
            }(how));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said,
                   test::contains(how == wrong::ended ? "a task was awaited that has ended before"
                                                      : "a task was awaited that holds no coroutine"));
    }
}

TEST_CASE("destroying a task that is suspended in an operation ends the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        task<> suspended = []() -> task<> { co_await sleep_for(1h); }();
        suspended.bind({&world.on, {}});
        suspended.handle().resume();
        suspended = task<>();
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("destroyed while pending"));
}

}  // namespace test_coro_task
