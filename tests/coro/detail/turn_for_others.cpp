#include <rdmacoro/coro/detail/turn_for_others.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace test_coro_detail_turn_for_others {

using namespace rdmacoro;

namespace {
task<int> at_once() {
    co_await detail::turn_for_others();
    co_return 1;
}
}  // namespace

TEST_CASE(
    "tasks that end at once let others have their turn now and then, also in a scope that was stopped") {
    test::virtual_time world;
    for (const bool is_stopped : {false, true}) {
        int turns = 0;
        int sum = 0;
        world.run([](bool stops, int& others, int& all) -> task<> {
            local_stop_source scope;
            if (stops) scope.request_stop();
            task_group beside;
            beside.spawn([&others]() -> task<> {
                for (; others < 4; ++others) co_await yield();
            });
            const auto loop = [&all]() -> task<> {
                for (int n = 0; n < 5000; ++n) all += co_await at_once();
            };
            co_await with_stop(loop(), scope.get_token());
            CHECK(others == 4);
            co_await beside.join();
        }(is_stopped, turns, sum));
        CHECK(sum == 5000);
    }
}

TEST_CASE("a task that ends at once is not suspended before others must have their turn") {
    test::virtual_time world;
    world.run([]() -> task<> {
        bool other = false;
        task_group beside;
        beside.spawn([&other]() -> task<> {
            other = true;
            co_return;
        });
        const int got = co_await at_once();
        CHECK(got == 1);
        CHECK(!other);
        co_await beside.join();
    }());
}

TEST_CASE(
    "a task that need not wait goes on in its turn, and ends canceled where its token is stopped already") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto works = [](int& times) -> task<> {
            co_await detail::unless_stopped();
            ++times;
        };
        int times = 0;
        int others = 0;
        task_group beside;
        beside.spawn([&others]() -> task<> {
            ++others;
            co_return;
        });
        co_await works(times);
        CHECK(times == 1);
        CHECK(others == 0);
        local_stop_source stopped;
        stopped.request_stop();
        const auto ended = co_await as_result(with_stop(works(times), stopped.get_token()));
        CHECK(ended.error() == errc::canceled);
        CHECK(times == 1);
        co_await beside.join();
    }());
}

TEST_CASE("a task that is tried again and again with a stopped token gives others their turn now and then") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto works = []() -> task<> { co_await detail::unless_stopped(); };
        local_stop_source stopped;
        stopped.request_stop();
        bool other = false;
        task_group beside;
        beside.spawn([&other]() -> task<> {
            other = true;
            co_return;
        });
        for (int n = 0; n < 100'000 && !other; ++n)
            static_cast<void>(co_await as_result(with_stop(works(), stopped.get_token())));
        CHECK(other);
        co_await beside.join();
    }());
}

TEST_CASE("tasks that look at their token first and end at once let others have their turn now and then") {
    test::virtual_time world;
    world.run([]() -> task<> {
        const auto works = []() -> task<> { co_await detail::unless_stopped(); };
        bool other = false;
        task_group beside;
        beside.spawn([&other]() -> task<> {
            other = true;
            co_return;
        });
        for (int n = 0; n < 100'000 && !other; ++n) co_await works();
        CHECK(other);
        co_await beside.join();
    }());
}

}  // namespace test_coro_detail_turn_for_others
