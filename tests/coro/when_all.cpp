#include <rdmacoro/coro/when_all.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/no_spare_frames.hpp"
#include "support/run.hpp"

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_coro_when_all {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<int> later(int n, duration after) {
    co_await sleep_for(after);
    co_return n;
}

task<> fail_after(duration after, const char* what) {
    if (after > 0s) co_await sleep_for(after);
    throw std::runtime_error(what);
}

task<> note_begin(int& begun) {
    ++begun;
    co_await sleep_for(1h);
}

task<int&> itself(int& n) { co_return n; }

}  // namespace

TEST_CASE("a lack of memory while when_all begins ends it, and what has begun is waited for") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    unsigned failed = 0;
    world.run([](unsigned& count) -> task<> {
        for (std::size_t which = 1; which <= 3; ++which) {
            event never;
            const test::no_spare_frames none;
            test::fail_allocation(which);
            try {
                static_cast<void>(co_await when_all(never.wait(), never.wait(), timeout(never.wait(), 1h)));
            } catch (const std::bad_alloc&) {
                ++count;
            }
            test::fail_allocation(0);
        }
    }(failed));
    CHECK(failed == 3);
}

TEST_CASE("all run at a time and their values come in order") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int target = 0;
        auto box = []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(8); };
        auto [a, b, c, d] = co_await when_all(later(1, 3s), sleep_for(1s), box(), itself(target));
        static_assert(std::is_same_v<decltype(b), std::monostate>);
        CHECK(a == 1);
        CHECK(*c == 8);
        CHECK(&d == &target);
        CHECK(on.now() == 3s);
    }(world));
}

TEST_CASE("what is all done at once does not suspend") {
    test::virtual_time world;
    world.run([]() -> task<> {
        event set(true);
        auto both = when_all(set.wait(), set.wait());
        task_group group;
        bool other = false;
        group.spawn([&other]() -> task<> {
            other = true;
            co_return;
        });
        co_await std::move(both);
        CHECK_FALSE(other);
        co_await group.join();
    }());
}

TEST_CASE("the first error cancels the others, which are waited for") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int ended = 0;
        auto slow_to_stop = [](int& count) -> task<> {
            const auto slept = co_await as_result(sleep_for(1h));
            CHECK(slept.error() == errc::canceled);
            ++count;
        };
        std::string said;
        try {
            co_await when_all(slow_to_stop(ended), fail_after(1s, "first"), slow_to_stop(ended),
                              fail_after(2s, "second"));
        } catch (const std::runtime_error& failed) {
            said = failed.what();
        }
        CHECK(said == "first");
        CHECK(ended == 2);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("after an error at once the rest never begins") {
    test::virtual_time world;
    world.run([]() -> task<> {
        int begun = 0;
        bool caught = false;
        try {
            co_await when_all(note_begin(begun), fail_after(0s, "at once"), note_begin(begun));
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        CHECK(begun == 1);
    }());
}

TEST_CASE("a vector of tasks gives a vector of values in the same order") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        std::vector<task<int>> tasks;
        for (int i = 0; i < 100; ++i) tasks.push_back(later(i, std::chrono::seconds(100 - i)));
        const std::vector<int> values = co_await when_all(std::move(tasks));
        REQUIRE(values.size() == 100);
        for (int i = 0; i < 100; ++i) CHECK(values[static_cast<std::size_t>(i)] == i);
        CHECK(on.now() == 100s);
        std::vector<task<>> nothing;
        nothing.push_back([]() -> task<> { co_return; }());
        co_await when_all(std::move(nothing));
        const std::vector<int> none = co_await when_all(std::vector<task<int>>());
        CHECK(none.empty());
        std::vector<task<>> failing;
        failing.push_back(fail_after(1s, "one of them"));
        failing.push_back(fail_after(1h, "late"));
        bool caught = false;
        try {
            co_await when_all(std::move(failing));
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        CHECK(on.now() == 101s);
    }(world));
}

TEST_CASE("operations that have begun are borrowed") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        channel<int> numbers(2);
        auto first = start(numbers.receive());
        auto second = start(sleep_for(2s));
        co_await numbers.send(5);
        const auto [number, none] = co_await when_all(first, second);
        CHECK(number == 5);
        CHECK(on.now() == 2s);
    }(world));
}

TEST_CASE("a timeout over when_all cancels all of it") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        const auto got = co_await as_result(timeout(when_all(later(1, 1h), sleep_for(2h)), 1s));
        CHECK(got.error() == errc::timed_out);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("with a stopped token none begins") {
    test::virtual_time world;
    world.run([]() -> task<> {
        local_stop_source stop;
        stop.request_stop();
        int begun = 0;
        const auto got =
            co_await as_result(with_stop(when_all(note_begin(begun), note_begin(begun)), stop.get_token()));
        CHECK(got.error() == errc::canceled);
        CHECK(begun == 0);
    }());
}

TEST_CASE("after warm-up when_all allocates nothing") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    const std::size_t counted = world.run([]() -> task<std::size_t> {
        std::size_t before = 0;
        for (int i = 0; i < 20; ++i) {
            if (i == 10) before = test::allocations();
            co_await when_all(later(1, 1s), sleep_for(2s));
        }
        co_return test::allocations() - before;
    }());
    CHECK(counted == 0);
}

TEST_CASE("destroying a when_all that is pending ends the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        auto all = when_all(sleep_for(1h), sleep_for(2h));
        all.bind({&world.on, {}});
        static_cast<void>(all.await_ready());
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("destroyed while pending"));
}

}  // namespace test_coro_when_all
