#include <rdmacoro/coro/yield.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <vector>

namespace test_coro_yield {

using namespace rdmacoro;

TEST_CASE("yield lets everything go first that was ready before") {
    test::virtual_time world;
    world.run([]() -> task<> {
        std::vector<int> order;
        task_group group;
        auto child = [](std::vector<int>& list, int n) -> task<> {
            list.push_back(n);
            co_await yield();
            list.push_back(10 * n);
        };
        group.spawn(child, std::ref(order), 1);
        group.spawn(child, std::ref(order), 2);
        co_await yield();
        order.push_back(3);
        co_await group.join();
        CHECK(order == std::vector<int>{1, 2, 3, 10, 20});
    }());
}

TEST_CASE("a loop of yields ends when it is asked to stop") {
    test::virtual_time world;
    world.run([]() -> task<> {
        task_group group;
        int rounds = 0;
        group.spawn([&rounds]() -> task<> {
            for (;;) {
                ++rounds;
                co_await yield();
            }
        });
        for (int i = 0; i < 5; ++i) co_await yield();
        group.request_stop();
        co_await group.join();
        CHECK(rounds >= 5);
        CHECK(rounds <= 8);
    }());
}

TEST_CASE("a loop of yields in a scope that was stopped gives others their turn now and then") {
    test::virtual_time world;
    world.run([]() -> task<> {
        local_stop_source stopped;
        stopped.request_stop();
        int others = 0;
        task_group beside;
        beside.spawn([&]() -> task<> {
            while (others < 3) {
                ++others;
                co_await yield();
            }
        });
        int yields = 0;
        for (; others < 3 && yields < 100'000; ++yields) {
            const auto ended = co_await as_result(with_stop(yield(), stopped.get_token()));
            CHECK(ended.error() == errc::canceled);
        }
        CHECK(others == 3);
        CHECK(yields > 100);  // it does not wait each time
        co_await beside.join();
    }());
}

}  // namespace test_coro_yield
