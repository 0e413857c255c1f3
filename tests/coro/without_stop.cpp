#include <rdmacoro/coro/without_stop.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace test_coro_without_stop {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<int> later(int n, duration after) {
    co_await sleep_for(after);
    co_return n;
}

task<> two_naps() {
    co_await sleep_for(1s);
    co_await sleep_for(1s);
}

}  // namespace

TEST_CASE("an operation without stop ends by itself, whether the stop came before it or meanwhile") {
    test::virtual_time world;
    std::stop_source quit;
    const duration ended = world.on.run(
        [](test::virtual_time& on, std::stop_source stop) -> task<duration> {
            auto stopping = [](std::stop_source& at) -> task<> {
                co_await sleep_for(1s);
                at.request_stop();
            };
            task_group group;
            group.spawn(stopping, std::ref(stop));
            const int value = co_await without_stop(later(7, 3s));
            CHECK(value == 7);
            CHECK(on.now() == 3s);
            auto seen = co_await as_result(sleep_for(1s));
            CHECK(seen.error() == errc::canceled);
            co_await without_stop(sleep_for(2s));
            co_await without_stop(two_naps());
            co_return on.now();
        }(world, quit),
        quit.get_token());
    CHECK(ended == 7s);
}

TEST_CASE("a limit inside counts, a limit around it does not") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        auto inside = co_await as_result(without_stop(timeout(sleep_for(10s), 1s)));
        CHECK(inside.error() == errc::timed_out);
        CHECK(on.now() == 1s);
        co_await timeout(without_stop(sleep_for(2s)), 1s);
        CHECK(on.now() == 3s);
        local_stop_source quit;
        quit.request_stop();
        auto given = co_await as_result(without_stop(with_stop(sleep_for(1s), quit.get_token())));
        CHECK(given.error() == errc::canceled);
    }(world));
}

TEST_CASE("with a grace period an operation has that long after the stop request") {
    test::virtual_time world;
    local_stop_source quit;
    world.run([](test::virtual_time& on, local_stop_source& stop) -> task<> {
        task_group group(stop.get_token());
        group.spawn([&]() -> task<> {
            auto cut = co_await as_result(without_stop(sleep_for(100s), 2s));
            CHECK(cut.error() == errc::canceled);
            CHECK(on.now() == 7s);
        });
        group.spawn([&]() -> task<> {
            co_await without_stop(later(1, 6s), 2s);
            CHECK(on.now() == 6s);
            // Begun after the request: it has its two seconds all the same.
            co_await without_stop(sleep_for(1s), 2s);
            CHECK(on.now() == 7s);
            auto cut = co_await as_result(without_stop(sleep_for(100s), 2s));
            CHECK(cut.error() == errc::canceled);
            CHECK(on.now() == 9s);
        });
        group.spawn([&]() -> task<> {
            auto none = co_await as_result(without_stop(sleep_for(100s), 0s));
            CHECK(none.error() == errc::canceled);
            CHECK(on.now() == 5s);
        });
        co_await sleep_for(5s);
        stop.request_stop();
        co_await group.join();
        CHECK(on.now() == 9s);
    }(world, quit));
}

TEST_CASE("the grace period of an operation that is never asked to stop does not begin") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        co_await without_stop(sleep_for(100s), 1s);
        CHECK(on.now() == 100s);
        event ready(true);
        co_await without_stop(ready.wait(), 0s);
    }(world));
}

TEST_CASE("errors pass through, and a thousand grace periods leave no timer behind") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        local_stop_source quit;
        auto fails = []() -> task<> {
            co_await sleep_for(1ms);
            throw std::runtime_error("own");
        };
        CHECK_THROWS_AS(co_await without_stop(fails()), std::runtime_error);
        task_group group(quit.get_token());
        int ended = 0;
        for (int n = 0; n < 1000; ++n) {
            group.spawn([&]() -> task<> {
                co_await without_stop(sleep_for(2s), 1h);
                ++ended;
            });
        }
        co_await sleep_for(1s);
        quit.request_stop();
        co_await group.join();
        CHECK(ended == 1000);
        co_await sleep_for(2h);  // a timer left behind would refer to a frame that is gone
        CHECK(on.now() > 2h);
    }(world));
}

TEST_CASE("a destructor that stops its coroutines waits for what goes on without stop") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        bool finished = false;
        {
            task_group group;
            group.spawn([&]() -> task<> {
                co_await without_stop(two_naps());
                finished = true;
            });
            co_await sleep_for(500ms);
        }
        CHECK(finished);
        CHECK(on.now() == 2s);
    }(world));
}

TEST_CASE("a destructor that waits for what goes on without stop lets other coroutines go on meanwhile") {
    const bool with_grace = GENERATE(false, true);
    test::virtual_time world;
    world.run([](test::virtual_time& on, bool grace) -> task<> {
        int ticks = 0;
        bool finished = false;
        event now;
        local_stop_source end;
        task_group others;
        others.spawn([&]() -> task<> {
            for (;;) {
                co_await with_stop(sleep_for(100ms), end.get_token());
                ++ticks;
            }
        });
        others.spawn([&]() -> task<> {
            co_await sleep_for(2s);
            now.set();
        });
        {
            task_group group;
            group.spawn([&]() -> task<> {
                if (grace) {
                    co_await without_stop(now.wait(), 1h);
                } else {
                    co_await without_stop(now.wait());
                }
                finished = true;
            });
            co_await sleep_for(50ms);
        }
        CHECK(finished);
        CHECK(on.now() == 2s);
        CHECK(ticks >= 19);
        end.request_stop();
        const result<> joined = co_await as_result(others.join());
        CHECK(joined.error() == errc::canceled);
    }(world, with_grace));
}

TEST_CASE("thousands of destructors that wait at a time take a bounded part of the stack") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        constexpr std::size_t many = 5000;
        std::size_t ended = 0;
        std::uintptr_t top = 0;
        std::uintptr_t lowest = static_cast<std::uintptr_t>(-1);
        const auto note = [&] {
            const char here = 0;
            const auto at = reinterpret_cast<std::uintptr_t>(&here);
            top = std::max(top, at);
            lowest = std::min(lowest, at);
        };
        task_group outer;
        for (std::size_t n = 0; n < many; ++n) {
            outer.spawn([&]() -> task<> {
                task_group inner;
                inner.spawn([&]() -> task<> {
                    co_await without_stop(sleep_for(10ms));
                    note();
                    ++ended;
                });
                co_await sleep_for(1h);
            });
        }
        co_await sleep_for(1ms);
        outer.request_stop();
        co_await outer.join();
        CHECK(ended == many);
        // A sanitizer has frames of other lengths, and locals elsewhere.
        if (test::counts_allocations) CHECK(top - lowest < (512u << 10));
        CHECK(on.now() < 20ms);
    }(world));
}

}  // namespace test_coro_without_stop
