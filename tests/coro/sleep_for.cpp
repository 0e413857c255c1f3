#include <rdmacoro/coro/sleep_for.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace test_coro_sleep_for {

using namespace rdmacoro;
using namespace std::chrono_literals;

TEST_CASE("a sleep lasts as long as asked for") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        co_await sleep_for(1500ms);
        CHECK(on.now() == 1500ms);
        co_await sleep_until(time_point(4s));
        CHECK(on.now() == 4s);
    }(world));
}

TEST_CASE("a sleep that is over already still lets the scheduler turn") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        co_await sleep_for(10s);
        int others = 0;
        task_group group;
        auto other = [](int& count) -> task<> {
            ++count;
            co_return;
        };
        group.spawn(other, std::ref(others));
        co_await sleep_for(0s);
        CHECK(others == 1);
        group.spawn(other, std::ref(others));
        co_await sleep_for(-1h);
        CHECK(others == 2);
        group.spawn(other, std::ref(others));
        co_await sleep_until(time_point(1s));
        CHECK(others == 3);
        CHECK(on.now() == 10s);
        co_await group.join();
    }(world));
}

TEST_CASE("a sleep counts from when it begins, not from when it is made") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        auto nap = sleep_for(1s);
        co_await sleep_for(5s);
        co_await std::move(nap);
        CHECK(on.now() == 6s);
    }(world));
}

TEST_CASE("a sleep without end is ended by a stop") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        local_stop_source stop;
        task_group group;
        group.spawn([&stop]() -> task<> {
            co_await sleep_for(1s);
            stop.request_stop();
        });
        const auto ended = co_await as_result(with_stop(sleep_for(duration::max()), stop.get_token()));
        CHECK(ended.error() == errc::canceled);
        CHECK(on.now() == 1s);
        co_await group.join();
    }(world));
}

TEST_CASE("thousands of sleepers wake in order") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        duration last{};
        int woken = 0;
        auto sleeper = [](test::virtual_time& w, duration after, duration& previous, int& count) -> task<> {
            co_await sleep_for(after);
            CHECK(w.now() == after);
            CHECK(after >= previous);
            previous = after;
            ++count;
        };
        task_group group;
        for (int i = 0; i < 5000; ++i)
            group.spawn(sleeper, std::ref(on), std::chrono::milliseconds(1 + i * 7919 % 5000), std::ref(last),
                        std::ref(woken));
        co_await group.join();
        CHECK(woken == 5000);
    }(world));
}

}  // namespace test_coro_sleep_for
