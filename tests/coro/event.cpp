#include <rdmacoro/coro/event.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <vector>

namespace test_coro_event {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {
task<> wait_and_note(event& ready, std::vector<int>& list, int n) {
    co_await ready.wait();
    list.push_back(n);
}
}  // namespace

TEST_CASE("waiting for an event that is set does not suspend") {
    test::virtual_time world;
    world.run([]() -> task<> {
        event ready(true);
        CHECK(ready.is_set());
        auto wait = start(ready.wait());
        CHECK(wait.done());
        co_await wait;
        ready.reset();
        CHECK_FALSE(ready.is_set());
    }());
}

TEST_CASE("setting an event resumes all waiters, in the order they came, once") {
    test::virtual_time world;
    world.run([]() -> task<> {
        event ready;
        std::vector<int> order;
        task_group group;
        for (int n = 1; n <= 3; ++n) group.spawn(wait_and_note, std::ref(ready), std::ref(order), n);
        co_await yield();
        CHECK(order.empty());
        ready.set();
        ready.set();
        ready.reset();  // whoever waited goes on all the same
        co_await group.join();
        CHECK(order == std::vector<int>{1, 2, 3});
        group.spawn(wait_and_note, std::ref(ready), std::ref(order), 4);
        for (int i = 0; i < 3; ++i) co_await yield();
        CHECK(order.size() == 3);
        ready.set();
        co_await group.join();
        CHECK(order.size() == 4);
    }());
}

TEST_CASE("a waiter that is canceled leaves the others waiting") {
    test::virtual_time world;
    world.run([]() -> task<> {
        event ready;
        std::vector<int> order;
        task_group group;
        group.spawn(wait_and_note, std::ref(ready), std::ref(order), 1);
        co_await yield();
        const auto impatient = co_await as_result(timeout(ready.wait(), 1s));
        CHECK(impatient.error() == errc::timed_out);
        ready.set();
        co_await group.join();
        CHECK(order == std::vector<int>{1});
    }());
}

TEST_CASE("an event may be destroyed once it is set, before its waiters are resumed") {
    test::virtual_time world;
    world.run([]() -> task<> {
        task_group group;
        std::vector<int> order;
        {
            event ready;
            group.spawn(wait_and_note, std::ref(ready), std::ref(order), 1);
            co_await yield();
            ready.set();
        }
        co_await group.join();
        CHECK(order == std::vector<int>{1});
    }());
}

TEST_CASE("destroying an event that has a waiter ends the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        world.run([]() -> task<> {
            task_group group;
            event ready;
            group.spawn([&ready]() -> task<> { co_await ready.wait(); });
            co_await yield();
        }());
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("event was destroyed"));
}

}  // namespace test_coro_event
