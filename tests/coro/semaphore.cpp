#include <rdmacoro/coro/semaphore.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <vector>

namespace test_coro_semaphore {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {
task<> acquire_and_note(semaphore& permits, std::size_t count, std::vector<int>& list, int n) {
    co_await permits.acquire(count);
    list.push_back(n);
}
}  // namespace

TEST_CASE("permits that are there are taken at once") {
    test::virtual_time world;
    world.run([]() -> task<> {
        semaphore permits(3);
        co_await permits.acquire();
        co_await permits.acquire(2);
        CHECK(permits.available() == 0);
        CHECK_FALSE(permits.try_acquire());
        permits.release(3);
        CHECK(permits.try_acquire(3));
        co_await permits.acquire(0);
        permits.release(3);
    }());
}

TEST_CASE("no more than the given number are inside at a time") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        semaphore permits(3);
        int inside = 0;
        int most = 0;
        auto worker = [](semaphore& s, int& now, int& max) -> task<> {
            co_await s.acquire();
            max = std::max(max, ++now);
            co_await sleep_for(1s);
            --now;
            s.release();
        };
        task_group group;
        for (int i = 0; i < 10; ++i) group.spawn(worker, std::ref(permits), std::ref(inside), std::ref(most));
        co_await group.join();
        CHECK(most == 3);
        CHECK(on.now() == 4s);
        CHECK(permits.available() == 3);
    }(world));
}

TEST_CASE("no waiter overtakes one that waits for more") {
    test::virtual_time world;
    world.run([]() -> task<> {
        semaphore permits(1);
        std::vector<int> order;
        task_group group;
        group.spawn(acquire_and_note, std::ref(permits), std::size_t{3}, std::ref(order), 1);
        group.spawn(acquire_and_note, std::ref(permits), std::size_t{1}, std::ref(order), 2);
        co_await yield();
        CHECK_FALSE(permits.try_acquire());
        permits.release();
        co_await yield();
        CHECK(order.empty());
        permits.release();
        co_await yield();
        CHECK(order == std::vector<int>{1});
        permits.release();
        co_await group.join();
        CHECK(order == std::vector<int>{1, 2});
    }());
}

TEST_CASE("when a waiter for more gives up, those behind it are served") {
    test::virtual_time world;
    world.run([]() -> task<> {
        semaphore permits(1);
        std::vector<int> order;
        task_group group;
        group.spawn([&permits]() -> task<> {
            const auto ended = co_await as_result(timeout(permits.acquire(5), 1s));
            CHECK(ended.error() == errc::timed_out);
        });
        group.spawn(acquire_and_note, std::ref(permits), std::size_t{1}, std::ref(order), 1);
        co_await group.join();
        CHECK(order == std::vector<int>{1});
        CHECK(permits.available() == 0);
    }());
}

TEST_CASE("a waiter that has its permits when it is asked to stop keeps them") {
    test::virtual_time world;
    world.run([]() -> task<> {
        semaphore permits(0);
        local_stop_source stop;
        task_group group;
        group.spawn([&]() -> task<> {
            permits.release();
            stop.request_stop();
            co_return;
        });
        const auto ended = co_await as_result(with_stop(permits.acquire(), stop.get_token()));
        CHECK(ended.has_value());
        CHECK(permits.available() == 0);
        co_await group.join();
    }());
}

TEST_CASE("destroying a semaphore that has a waiter ends the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        world.run([]() -> task<> {
            task_group group;
            semaphore permits(0);
            group.spawn([&permits]() -> task<> { co_await permits.acquire(); });
            co_await yield();
        }());
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("semaphore was destroyed"));
}

TEST_CASE("more permits than a number can hold are as many as it can") {
    constexpr std::size_t most = static_cast<std::size_t>(-1);
    semaphore permits(1);
    permits.release(most);
    CHECK(permits.available() == most);
    CHECK(permits.try_acquire(2));
    CHECK(permits.available() == most - 2);
}

}  // namespace test_coro_semaphore
