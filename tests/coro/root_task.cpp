#include <rdmacoro/coro/root_task.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_coro_root_task {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<std::unique_ptr<int>> later(int n, duration after) {
    co_await sleep_for(after);
    co_return std::make_unique<int>(n);
}

task<> fails() {
    co_await yield();
    throw std::runtime_error("out of luck");
}

/// Drives it as another event loop does, in virtual time.
void drive(scheduler& on, const auto& done) {
    while (!done()) {
        while (on.poll()) {}
        if (!done()) CHECK(on.prepare_to_wait() == duration::zero());
    }
}

}  // namespace

TEST_CASE("a started root task runs in polls, beside others, and its value is taken when it has ended") {
    test::virtual_time world;
    bool began = false;
    auto first = world.on.start(later(1, 2s));
    auto second = world.on.start([](bool& flag) -> task<int&> {
        static int value = 2;
        flag = true;
        co_await yield();
        co_return value;
    }(began));
    CHECK_FALSE(began);  // it does not run in `start`
    CHECK_THROWS_AS(first.get(), error);
    drive(world.on, [&] { return second.done(); });
    CHECK(began);
    CHECK(second.get() == 2);
    CHECK_FALSE(first.done());
    CHECK(world.now() == 0s);
    drive(world.on, [&] { return first.done(); });
    CHECK(*first.get() == 1);
    CHECK(world.now() == 2s);
    // Coroutines of both kinds run beside each other.
    std::optional<root_task<>> stored;
    stored.emplace(world.on, []() -> task<> { co_await sleep_for(1s); }());
    world.run([]() -> task<> { co_await sleep_for(2s); }());
    CHECK(stored->done());
}

TEST_CASE("a root task is asked to stop by its object, by its token, and by its object's end") {
    test::virtual_time world;
    std::stop_source quit;
    auto by_object = world.on.start(later(1, 1h));
    auto by_token = world.on.start(later(2, 1h), quit.get_token());
    bool stopped = false;
    {
        auto by_end = world.on.start([](bool& flag) -> task<> {
            const auto outcome = co_await as_result(sleep_for(1h));
            flag = outcome.error() == errc::canceled;
        }(stopped));
        while (world.on.poll()) {}
    }
    CHECK(stopped);
    CHECK_FALSE(by_token.done());
    quit.request_stop();
    by_object.request_stop();
    drive(world.on, [&] { return by_object.done() && by_token.done(); });
    CHECK_THROWS_AS(by_object.get(), error);
    CHECK_THROWS_AS(by_token.get(), error);
    CHECK(world.now() == 0s);
    auto late = world.on.start(later(3, 1h), quit.get_token());
    drive(world.on, [&] { return late.done(); });
    CHECK_THROWS_AS(late.get(), error);
}

TEST_CASE("the error of a root task comes out of get, or goes to stderr") {
    test::virtual_time world;
    auto failing = world.on.start(fails());
    drive(world.on, [&] { return failing.done(); });
    CHECK_THROWS_WITH(failing.get(), "out of luck");
    CHECK_THROWS_AS(world.on.start(task<>()), error);

    for (const bool asked : {false, true}) {
        const test::death seen = test::dies([asked] {
            test::virtual_time own;
            auto stopped = own.on.start(later(1, 1h));
            auto dropped = own.on.start(fails());
            while (!dropped.done()) own.on.poll();
            if (asked) CHECK_THROWS(dropped.get());
        });
        CHECK(seen.status == 0);
        CHECK((seen.said.find("out of luck") != std::string::npos) == !asked);
        CHECK(seen.said.find("canceled") == std::string::npos);
    }
}

TEST_CASE("five thousand root tasks run at a time") {
    test::virtual_time world;
    std::vector<std::unique_ptr<root_task<std::unique_ptr<int>>>> all;
    for (int n = 0; n < 5000; ++n)
        all.push_back(std::make_unique<root_task<std::unique_ptr<int>>>(world.on, later(n, 1s)));
    drive(world.on, [&] { return all.front()->done() && all.back()->done(); });
    int sum = 0;
    for (auto& each : all) sum += *each->get();
    CHECK(sum == 4999 * 5000 / 2);
    CHECK(world.now() == 1s);
}

namespace {

/// The least processor time, of three, in which one of `count` coroutines that are ready destroys the others.
std::clock_t time_to_destroy(std::size_t count) {
    auto least = std::numeric_limits<std::clock_t>::max();
    for (int time = 0; time < 3; ++time) {
        test::virtual_time world;
        event go;
        std::vector<std::unique_ptr<root_task<>>> others;
        std::size_t ended = 0;
        root_task<> first(world.on, [](event& begin, auto& to_destroy, auto& fastest) -> task<> {
            co_await begin.wait();
            const std::clock_t begun = std::clock();
            to_destroy.clear();
            fastest = std::min(fastest, std::clock() - begun);
        }(go, others, least));
        for (std::size_t n = 0; n < count; ++n) {
            others.push_back(
                std::make_unique<root_task<>>(world.on, [](event& begin, std::size_t& all) -> task<> {
                    co_await begin.wait();
                    ++all;
                }(go, ended)));
        }
        while (world.on.poll()) {}
        CHECK(ended == 0);  // they wait
        go.set();
        while (!first.done()) world.on.poll();
        CHECK(ended == count);  // each that was ready went on to its end
    }
    return least;
}

}  // namespace

TEST_CASE("thousands of coroutines that are ready are destroyed in a time that grows as their number") {
    const auto of_few = time_to_destroy(1000);
    const auto of_many = time_to_destroy(8000);
    CAPTURE(of_few, of_many);
    CHECK(of_many < 24 * of_few);  // some 64 times where each looks at all
}

}  // namespace test_coro_root_task
