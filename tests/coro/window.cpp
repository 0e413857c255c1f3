#include <rdmacoro/coro/window.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <stdexcept>
#include <string>
#include <vector>

namespace test_coro_window {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

using nap = decltype(sleep_for(1s));

task<int> value_after(int value, duration after) {
    co_await sleep_for(after);
    co_return value;
}

task<> fails_after(duration after) {
    co_await sleep_for(after);
    throw std::runtime_error("failed");
}

task<> counted_nap(duration after, int& ended, int& canceled) {
    const auto outcome = co_await as_result(sleep_for(after));
    ++(outcome ? ended : canceled);
    outcome.value();
}

}  // namespace

TEST_CASE("a window of n operations keeps n under way and allocates for none of them") {
    test::virtual_time world;
    for (const std::size_t width : {1U, 100U, 5000U}) {
        world.run([](test::virtual_time& on, std::size_t capacity) -> task<> {
            // Grows the scheduler's own store of timers.
            window<nap> before(capacity);
            for (std::size_t n = 0; n < capacity; ++n) co_await before.add(sleep_for(1s));
            CHECK(before.full());
            co_await before.all();

            const duration began = on.now();
            const std::size_t taken = test::allocations();
            window<nap> naps(capacity);
            for (std::size_t n = 0; n < 3 * capacity; ++n) co_await naps.add(sleep_for(1s));
            CHECK(on.now() - began == 2s);  // the third row has just begun
            CHECK(naps.size() == capacity);
            co_await naps.all();
            const std::size_t in_all = test::allocations() - taken;
            CHECK(on.now() - began == 3s);
            CHECK(naps.empty());
            if (test::counts_allocations)
                CHECK(in_all <= 2);  // its slots, and a frame that the pool did not have
        }(world, width));
    }
}

TEST_CASE("five thousand operations through a window of 32 allocate as many times as 100 do") {
    test::virtual_time world;
    world.run([]() -> task<> {
        std::size_t taken[3] = {};
        std::size_t at = 0;
        for (const int count : {100, 100, 5000}) {
            const std::size_t before = test::allocations();
            window<nap> naps(32);
            for (int n = 0; n < count; ++n) co_await naps.add(sleep_for(1ms));
            co_await naps.all();
            taken[at++] = test::allocations() - before;
        }
        if (test::counts_allocations) CHECK(taken[1] == taken[2]);
    }());
}

TEST_CASE("values come in the order of the starts, whatever ends first") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        window<task<int>> tasks(3);
        tasks.start(value_after(1, 3s));
        tasks.start(value_after(2, 1s));
        tasks.start(value_after(3, 2s));
        CHECK_THROWS_AS(tasks.start(value_after(4, 1s)), error);
        const int first = co_await tasks.next();
        CHECK(first == 1);
        CHECK(on.now() == 3s);
        tasks.start(value_after(4, 1s));  // goes round in the row
        int rest = 0;
        while (!tasks.empty()) rest = 10 * rest + co_await tasks.next();
        CHECK(rest == 234);
        CHECK(on.now() == 4s);
        CHECK_THROWS_AS(tasks.next(), error);
    }(world));
}

TEST_CASE("an error comes out where it is awaited, and all cancels the others after it") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int ended = 0, canceled = 0;
        window<task<>> tasks(3);
        tasks.start(counted_nap(1s, ended, canceled));
        tasks.start(fails_after(2s));
        tasks.start(counted_nap(1h, ended, canceled));
        CHECK_THROWS_WITH(co_await tasks.all(), "failed");
        CHECK(tasks.empty());
        CHECK(on.now() == 2s);
        CHECK(ended == 1);
        CHECK(canceled == 1);

        // A failed operation makes room, but the one that waited for that does not begin.
        window<task<>> one(1);
        co_await one.add(fails_after(1s));
        CHECK_THROWS_WITH(co_await one.add(counted_nap(1h, ended, canceled)), "failed");
        CHECK(one.empty());
        co_await one.add(counted_nap(1s, ended, canceled));
        co_await one.all();
        CHECK(ended == 2);
    }(world));
}

TEST_CASE("cancel ends all that are under way, for operations and for tasks") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int ended = 0, canceled = 0;
        window<nap> naps(100);
        window<task<>> tasks(100);
        for (int n = 0; n < 100; ++n) {
            naps.start(sleep_for(1h));
            tasks.start(counted_nap(n < 50 ? 1s : 1h, ended, canceled));
        }
        co_await sleep_for(1s);
        co_await naps.cancel();
        co_await tasks.cancel();
        CHECK(naps.empty());
        CHECK(ended == 50);
        CHECK(canceled == 50);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("a stop request ends the wait for room, and nothing begins after it") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        window<nap> naps(2);
        int begun = 0;
        local_stop_source quit;
        auto adding = [&]() -> task<> {
            for (;; ++begun) co_await naps.add(sleep_for(1h));
        };
        auto stopped = start(with_stop(adding(), quit.get_token()));
        CHECK(begun == 2);
        auto first = as_result(stopped);
        quit.request_stop();
        const auto outcome = co_await std::move(first);
        CHECK(outcome.error() == errc::canceled);
        CHECK(naps.size() == 1);  // the one that was waited for has ended
        auto none = co_await as_result(with_stop(naps.add(sleep_for(1h)), quit.get_token()));
        CHECK(none.error() == errc::canceled);
        CHECK(naps.size() == 1);
        co_await naps.cancel();
        CHECK(on.now() == 0s);
    }(world));
}

TEST_CASE("an exception that unwinds the scope of a window cancels what is under way") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int ended = 0, canceled = 0;
        auto failing = [&]() -> task<> {
            window<nap> naps(4);
            window<task<>> tasks(4);
            for (int n = 0; n < 3; ++n) {
                naps.start(sleep_for(1h));
                tasks.start(counted_nap(1h, ended, canceled));
            }
            co_await sleep_for(1s);
            throw std::runtime_error("own");
        };
        CHECK_THROWS_WITH(co_await failing(), "own");
        CHECK(canceled == 3);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("a window that is left with operations under way ends the process with a message") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        world.run([]() -> task<> {
            window<nap> naps(2);
            naps.start(sleep_for(1s));
            co_return;
        }());
    });
    CHECK(seen.aborted);
    CHECK(seen.said.find("never awaited") != std::string::npos);
}

TEST_CASE("a window of nothing is refused") { CHECK_THROWS_AS(window<nap>(0), error); }

}  // namespace test_coro_window
