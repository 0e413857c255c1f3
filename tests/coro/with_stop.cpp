#include <rdmacoro/coro/with_stop.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace test_coro_with_stop {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<int> later(int n, duration after) {
    co_await sleep_for(after);
    co_return n;
}

/// A thread that asks each source it is handed to stop, after a number of rounds that differs from one to the next.
class stopper {
public:
    stopper() : thread_([this] { work(); }) {}
    ~stopper() {
        quit_ = true;
        thread_.join();
    }
    void stop_soon(std::stop_source source) {
        while (full_.load(std::memory_order_acquire)) std::this_thread::yield();
        next_ = std::move(source);
        full_.store(true, std::memory_order_release);
    }
    /// How many it has asked, or is about to ask.
    [[nodiscard]] int stops() const noexcept { return stops_.load(std::memory_order_acquire); }

private:
    void work() {
        for (unsigned round = 0; !quit_; ++round) {
            if (!full_.load(std::memory_order_acquire)) {
                std::this_thread::yield();
                continue;
            }
            for (unsigned spin = 0; spin < round * 37 % 400; ++spin) quit_.load(std::memory_order_relaxed);
            std::stop_source source = std::move(next_);
            full_.store(false, std::memory_order_release);
            stops_.fetch_add(1, std::memory_order_release);
            source.request_stop();
        }
    }

    std::atomic<bool> full_{false};
    std::atomic<bool> quit_{false};
    std::atomic<int> stops_{0};
    std::stop_source next_;
    std::thread thread_;
};

}  // namespace

TEST_CASE("either token stops the operation") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        local_stop_source given, own;
        task_group group;
        group.spawn([&]() -> task<> {
            co_await sleep_for(1s);
            given.request_stop();
            co_await sleep_for(1s);
            own.request_stop();
        });
        const auto first = co_await as_result(with_stop(sleep_for(1h), given.get_token()));
        CHECK(first.error() == errc::canceled);
        CHECK(on.now() == 1s);
        local_stop_source other;
        const auto second =
            co_await as_result(with_stop(with_stop(later(1, 1h), other.get_token()), own.get_token()));
        CHECK(second.error() == errc::canceled);
        CHECK(on.now() == 2s);
        CHECK_FALSE(other.stop_requested());
        co_await group.join();
    }(world));
}

TEST_CASE("a token that cannot stop, or does not, changes nothing") {
    test::virtual_time world;
    world.run([]() -> task<> {
        const int a = co_await with_stop(later(1, 1s), local_stop_token());
        const int b = co_await with_stop(later(2, 1s), std::stop_token());
        std::stop_source stop;
        const int c = co_await with_stop(later(3, 1s), stop.get_token());
        CHECK(a + b + c == 6);
        stop.request_stop();
        local_stop_source local;
        co_await with_stop(sleep_for(1s), local.get_token());
        local.request_stop();
    }());
}

TEST_CASE("a token that is stopped already ends an operation before it begins") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        std::stop_source stop;
        stop.request_stop();
        channel<int> numbers(1);
        REQUIRE(numbers.try_send(1));
        const auto got = co_await as_result(with_stop(numbers.receive(), stop.get_token()));
        CHECK(got.error() == errc::canceled);
        CHECK(numbers.size() == 1);
        const auto task_got = co_await as_result(with_stop(later(1, 1h), stop.get_token()));
        CHECK(task_got.error() == errc::canceled);
        CHECK(on.now() == 0s);
    }(world));
}

TEST_CASE("a stop by the same thread from inside the scheduler works too") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        std::stop_source stop;
        task_group group;
        group.spawn([&stop]() -> task<> {
            co_await sleep_for(1s);
            stop.request_stop();
        });
        const auto got = co_await as_result(with_stop(sleep_for(1h), stop.get_token()));
        CHECK(got.error() == errc::canceled);
        CHECK(on.now() == 1s);
        co_await group.join();
    }(world));
}

TEST_CASE("another thread stops a parked operation, every time") {
    scheduler on(idle::adaptive(0ns, 0ns));
    stopper other;
    for (int round = 0; round < 3000; ++round) {
        std::stop_source stop;
        other.stop_soon(stop);
        const auto ended = on.run([](std::stop_token token) -> task<result<>> {
            event never;
            co_return co_await as_result(with_stop(never.wait(), token));
        }(stop.get_token()));
        REQUIRE(ended.error() == errc::canceled);
    }
}

TEST_CASE("a stop that races with the end of the operation gives either, and leaves nothing behind") {
    scheduler on(idle::yield{});
    stopper other;
    int values = 0;
    int cancels = 0;
    // On a busy machine a round takes as long as the other thread waits for a core, twice.
    const auto began = std::chrono::steady_clock::now();
    const auto goes_on = [&] {
        return std::chrono::steady_clock::now() - began < (std::min(values, cancels) < 20 ? 20s : 5s);
    };
    for (int round = 0; round < 5000 && goes_on(); ++round) {
        std::stop_source stop;
        other.stop_soon(stop);
        bool began_first = false;
        const auto ended = on.run([](std::stop_token token, const stopper& by, int stops_before, int yields,
                                     bool& first) -> task<result<int>> {
            auto body = [](const stopper& from, int before, int n, bool& begins_first) -> task<int> {
                begins_first = from.stops() == before;
                while (from.stops() == before) {  // until it is about to ask, or has just done so
                    std::this_thread::yield();
                    co_await yield();
                }
                for (int i = 0; i < n; ++i) co_await yield();
                co_return n;
            };
            co_return co_await as_result(with_stop(body(by, stops_before, yields, first), token));
        }(stop.get_token(), other, round, round % 2 == 0 ? 0 : round % 40, began_first));
        REQUIRE_FALSE(on.run_posted());
        if (!ended) REQUIRE(ended.error() == errc::canceled);
        if (began_first) ++(ended ? values : cancels);
    }
    CHECK(values >= 20);
    CHECK(cancels >= 20);
}

TEST_CASE("a stop that comes when the operation has just ended leaves nothing behind") {
    scheduler on;
    on.run([](scheduler& by) -> task<> {
        for (int round = 0; round < 200; ++round) {
            std::stop_source stop;
            const auto stops_last = [](std::stop_source& to_stop) -> task<int> {
                co_await yield();
                std::thread([&to_stop] { to_stop.request_stop(); }).join();
                co_return 1;
            };
            const int got = co_await with_stop(stops_last(stop), stop.get_token());
            REQUIRE_FALSE(by.run_posted());
            REQUIRE(got == 1);
        }
    }(on));
}

TEST_CASE("with_stop allocates nothing") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    const std::size_t counted = world.run([]() -> task<std::size_t> {
        std::stop_source stop;
        local_stop_source local;
        std::size_t before = 0;
        for (int i = 0; i < 20; ++i) {
            if (i == 10) before = test::allocations();
            co_await with_stop(sleep_for(1s), stop.get_token());
            co_await with_stop(sleep_for(1s), local.get_token());
        }
        co_return test::allocations() - before;
    }());
    CHECK(counted == 0);
}

TEST_CASE("a stop that comes while the operation begins is not lost") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        local_stop_source given;
        event never;
        const auto stops = [&]() -> task<> {
            given.request_stop();
            co_await never.wait();
        };
        const auto several =
            co_await as_result(with_stop(when_all(never.wait(), stops()), given.get_token()));
        CHECK(several.error() == errc::canceled);
        local_stop_source other;
        const auto stops_other = [&]() -> task<> {
            other.request_stop();
            co_return;
        };
        // Nothing else ends it: in virtual time a sleep of years would.
        const auto late =
            co_await as_result(with_stop(when_all(stops_other(), sleep_for(24h * 10000)), other.get_token()));
        CHECK(late.error() == errc::canceled);
        CHECK(on.now() == 0s);
    }(world));
}

}  // namespace test_coro_with_stop
