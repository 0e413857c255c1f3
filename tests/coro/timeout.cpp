#include <rdmacoro/coro/timeout.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_coro_timeout {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<int> later(int n, duration after) {
    co_await sleep_for(after);
    co_return n;
}

/// A sleep that ignores stop tokens.
struct deaf_sleep {
    sleep_operation sleep;
    bool await_ready() {
        sleep.bind({scheduler::current(), {}});
        return sleep.await_ready();
    }
    void await_suspend(std::coroutine_handle<> awaiting) { sleep.await_suspend(awaiting); }
    void await_resume() { sleep.await_resume(); }
};

/// Ignores stop requests.
task<int> stubborn(int n, duration after) {
    co_await deaf_sleep{sleep_for(after)};
    co_return n;
}

}  // namespace

TEST_CASE("what ends in time ends as without a timeout") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        const int got = co_await timeout(later(3, 1s), 2s);
        CHECK(got == 3);
        co_await timeout(sleep_for(1s), 2s);
        CHECK(on.now() == 2s);
        channel<std::string> texts(1);
        REQUIRE(texts.try_send("here"));
        const std::string text = co_await timeout(texts.receive(), 1s);
        CHECK(text == "here");
        CHECK(on.now() == 2s);
    }(world));
    // No timer is left behind: time does not move.
    world.run([]() -> task<> { co_await yield(); }());
    CHECK(world.now() == 2s);
}

namespace {

/// Awaits `inner`, which ends at once or soon, as an lvalue within a `with_stop` that ends before it does.
template <class A>
task<> awaited_within_what_ends_first(std::optional<A>& inner) {
    local_stop_source never;
    using outer_type = with_stop_operation<A&, local_stop_token>;
    alignas(outer_type) std::byte room[sizeof(outer_type)];
    auto* const outer = ::new (room) outer_type(*inner, never.get_token());
    static_cast<void>(co_await *outer);
    std::destroy_at(outer);
    std::memset(room, 0x5a, sizeof room);
    inner.reset();
    CHECK(std::all_of(std::begin(room), std::end(room), [](std::byte b) { return b == std::byte{0x5a}; }));
}

}  // namespace

TEST_CASE("an lvalue that was awaited leaves the operations around it, which may end before it does") {
    test::virtual_time world;
    world.run([](duration after) -> task<> {
        std::optional<timeout_operation<sleep_operation>> limited(std::in_place, sleep_for(after), 1h);
        co_await awaited_within_what_ends_first(limited);
        local_stop_source other;
        using stoppable = with_stop_operation<sleep_operation, local_stop_token>;
        std::optional<stoppable> stopped(std::in_place, sleep_for(after), other.get_token());
        co_await awaited_within_what_ends_first(stopped);
        std::stop_source foreign;
        using by_thread = with_stop_operation<sleep_operation, std::stop_token>;
        std::optional<by_thread> from_thread(std::in_place, sleep_for(after), foreign.get_token());
        co_await awaited_within_what_ends_first(from_thread);
        std::optional<when_all_operation<sleep_operation, sleep_operation>> all(
            std::in_place, sleep_for(after), sleep_for(after));
        co_await awaited_within_what_ends_first(all);
        std::optional<when_any_operation<sleep_operation, sleep_operation>> any(
            std::in_place, sleep_for(after), sleep_for(1h));
        co_await awaited_within_what_ends_first(any);
    }(GENERATE(0ms, 1ms)));
}

TEST_CASE("what takes too long ends with timed_out at the limit") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        const auto first = co_await as_result(timeout(sleep_for(1h), 1s));
        CHECK(first.error() == errc::timed_out);
        const auto second = co_await as_result(timeout(later(1, 1h), 1s));
        CHECK(second.error() == errc::timed_out);
        CHECK(on.now() == 2s);
        bool thrown = false;
        try {
            co_await timeout(sleep_for(1h), 1s);
        } catch (const error& ended) {
            thrown = ended.code() == errc::timed_out;
        }
        CHECK(thrown);
    }(world));
}

TEST_CASE("zero or less still gives what is ready at once") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        for (const duration limit : {duration(0), duration(-5s)}) {
            channel<int> numbers(1);
            const auto empty = co_await as_result(timeout(numbers.receive(), limit));
            CHECK(empty.error() == errc::timed_out);
            REQUIRE(numbers.try_send(1));
            const auto full = co_await as_result(timeout(numbers.receive(), limit));
            CHECK(full.has_value());
        }
        CHECK(on.now() == 0s);
    }(world));
}

TEST_CASE("a limit longer than time itself is no limit") {
    test::virtual_time world;
    CHECK(world.run([]() -> task<int> { co_return co_await timeout(later(1, 24h), duration::max()); }()) ==
          1);
}

TEST_CASE("a value that comes at the very limit wins") {
    test::virtual_time world;
    world.run([]() -> task<> {
        // Both timers are due at once; the sleep's was queued first.
        const auto sleep_first = co_await as_result(timeout(sleep_for(1s), 1s));
        CHECK(sleep_first.has_value());
        event ready;
        task_group group;
        group.spawn([&ready]() -> task<> {
            co_await sleep_for(1s);
            ready.set();  // its timer expires with the limit, but it runs after both have
        });
        const auto got = co_await as_result(timeout(ready.wait(), 1s));
        CHECK(got.error() == errc::timed_out);
        co_await group.join();
        const auto late = co_await as_result(timeout(stubborn(9, 2s), 1s));
        REQUIRE(late.has_value());
        CHECK(*late == 9);
    }());
}

TEST_CASE("an operation that ended before its limit was noticed gives its value") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        event ready;
        task_group group;
        group.spawn([&]() -> task<> {
            ready.set();
            on.time.advance(1h);  // the limit is long over when the waiting task is resumed
            co_return;
        });
        co_await timeout(ready.wait(), 1s);
        co_await group.join();
    }(world));
}

TEST_CASE("a stop of the surrounding task stays a cancellation") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        local_stop_source stop;
        task_group group;
        group.spawn([&stop]() -> task<> {
            co_await sleep_for(1s);
            stop.request_stop();
        });
        const auto operation = co_await as_result(with_stop(timeout(sleep_for(1h), 2h), stop.get_token()));
        CHECK(operation.error() == errc::canceled);
        CHECK(on.now() == 1s);
        const auto stopped = co_await as_result(with_stop(timeout(later(1, 1h), 2h), stop.get_token()));
        CHECK(stopped.error() == errc::canceled);
        CHECK(on.now() == 1s);
        co_await group.join();
    }(world));
}

TEST_CASE("a limit holds where there is no memory for its timer") {
    if (!test::counts_allocations) SKIP_TEST("needs allocations that fail");
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        constexpr int many = 100;  // the scheduler has room for sixteen timers
        event begin, never;
        std::vector<time_point> ended;
        ended.reserve(many);
        const auto wait = [&](int n) -> task<> {
            co_await begin.wait();
            const result<> over =
                co_await as_result(timeout(never.wait(), std::chrono::milliseconds(many - n)));
            CHECK(over.error() == errc::timed_out);
            CHECK(on.now() == std::chrono::milliseconds(many - n));
            ended.push_back(scheduler::current()->now());
        };
        task_group waiting;
        for (int n = 0; n < many; ++n) waiting.spawn(wait, n);
        co_await yield();
        begin.set();
        test::fail_next_allocations(1'000'000);
        co_await yield();
        test::fail_next_allocations(0);
        co_await waiting.join();
        CHECK(ended.size() == many);
        CHECK(std::is_sorted(ended.begin(), ended.end()));
    }(world));
}

TEST_CASE("timeouts nest, and the shorter counts") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        const auto inner = co_await as_result(timeout(timeout(sleep_for(1h), 1s), 2s));
        CHECK(inner.error() == errc::timed_out);
        CHECK(on.now() == 1s);
        const auto outer = co_await as_result(timeout(timeout(sleep_for(1h), 5s), 1s));
        CHECK(outer.error() == errc::timed_out);
        CHECK(on.now() == 2s);
    }(world));
}

TEST_CASE("exceptions of a task pass through a timeout with all they say") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto fails = []() -> task<> {
            co_await sleep_for(1s);
            throw error(errc::peer_lost, "node 7");
        };
        std::string said;
        try {
            co_await timeout(fails(), 2s);
        } catch (const error& thrown) {
            said = thrown.what();
        }
        CHECK_THAT(said, test::contains("node 7"));
        auto breaks = []() -> task<> {
            try {
                co_await sleep_for(1h);
            } catch (const error&) {
                throw std::logic_error("while stopping");
            }
        };
        bool broke = false;
        try {
            co_await timeout(breaks(), 1s);
        } catch (const std::logic_error&) {
            broke = true;
        }
        CHECK(broke);
    }());
}

TEST_CASE("after warm-up a timeout allocates nothing, kept or not") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    const std::size_t counted = world.run([]() -> task<std::size_t> {
        std::size_t before = 0;
        event never;
        for (int i = 0; i < 20; ++i) {
            if (i == 10) before = test::allocations();
            co_await timeout(sleep_for(1s), 2s);
            const auto late = co_await as_result(timeout(never.wait(), 1s));
            if (late.error() != errc::timed_out) co_return 1000;
        }
        co_return test::allocations() - before;
    }());
    CHECK(counted == 0);
}

TEST_CASE(
    "a time limit on an operation that ended at once sets no timer, also when others get their turn first") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    scheduler s;  // new: its first timer would allocate
    s.run([]() -> task<> {
        event set;
        set.set();
        unsigned turns = 0;
        const auto counting = [&turns]() -> task<> {
            for (;;) {
                ++turns;
                co_await yield();
            }
        };
        task_group others;
        others.spawn(counting);
        co_await yield();
        const unsigned turns_before = turns;
        const std::size_t before = test::allocations();
        for (int i = 0; i < 10'000; ++i) co_await timeout(set.wait(), 1h);
        CHECK(turns > turns_before);  // it was suspended, though nothing waited
        CHECK(test::allocations() == before);
        others.request_stop();
        static_cast<void>(co_await as_result(others.join()));
    }());
}

}  // namespace test_coro_timeout
