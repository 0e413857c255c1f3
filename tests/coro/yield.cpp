#include <rdmacoro/coro/yield.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <vector>

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
