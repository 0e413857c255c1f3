// Errors of children that nothing joins.
#include <rdmacoro/coro/task_group.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_coro_task_group_errors {

using namespace rdmacoro;
using namespace std::chrono_literals;

TEST_CASE("each error of a child goes to on_error, and join ends without it") {
    test::virtual_time world;
    world.run([]() -> task<> {
        std::vector<std::string> heard;
        task_group group;
        group.on_error([&heard](std::exception_ptr failure) {
            try {
                std::rethrow_exception(failure);
            } catch (const std::exception& e) {
                heard.emplace_back(e.what());
            }
        });
        auto fails = [](std::string text) -> task<> {
            co_await sleep_for(1s);
            throw std::runtime_error(text);
        };
        group.spawn(fails, "one");
        group.spawn(fails, "two");
        group.spawn([]() -> task<> { co_await sleep_for(2s); });
        co_await group.join();
        CHECK(heard == std::vector<std::string>{"one", "two"});
        // Stopped children are no errors here either.
        group.spawn([]() -> task<> { co_await sleep_for(1h); });
        co_await yield();
        group.request_stop();
        co_await group.join();
        CHECK(heard.size() == 2);
    }());
}

TEST_CASE("on_error may set another handler and the one that runs stays until it returns") {
    test::virtual_time world;
    world.run([]() -> task<> {
        std::vector<std::string> heard;
        task_group group;
        group.on_error([&heard, &group, text = std::string(100, 'x')](std::exception_ptr) {
            group.on_error([&heard](std::exception_ptr) { heard.emplace_back("third"); });
            group.on_error([&heard](std::exception_ptr) { heard.emplace_back("second"); });
            heard.push_back(text);
        });
        const auto fails = []() -> task<> {
            co_await yield();
            throw std::runtime_error("again");
        };
        for (int n = 0; n < 3; ++n) group.spawn(fails);
        co_await group.join();
        CHECK(heard == std::vector<std::string>{std::string(100, 'x'), "second", "second"});
    }());
}

TEST_CASE("on_error may spawn another child, and takes thousands of errors") {
    test::virtual_time world;
    world.run([]() -> task<> {
        struct job {
            task_group group;
            int failed = 0;
            static task<> fails() {
                co_await yield();
                throw std::runtime_error("again");
            }
        } all;
        all.group.on_error([&all](const std::exception_ptr&) {
            if (++all.failed < 5000) all.group.spawn(&job::fails);
        });
        all.group.spawn(&job::fails);
        co_await all.group.join();
        CHECK(all.failed == 5000);
    }());
}

TEST_CASE(
    "an error that came before on_error is still for join, and a group of one job still stops its others") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        int heard = 0;
        task_group group(on_child_error::stop_others);
        group.spawn([]() -> task<> {
            throw std::runtime_error("early");
            co_return;
        });
        co_await yield();
        group.on_error([&heard](const std::exception_ptr&) { ++heard; });
        CHECK_THROWS_WITH(co_await group.join(), "early");
        CHECK(heard == 0);

        task_group job(on_child_error::stop_others);
        job.on_error([&heard](const std::exception_ptr&) { ++heard; });
        job.spawn([]() -> task<> { co_await sleep_for(1h); });
        job.spawn([]() -> task<> {
            throw std::runtime_error("part");
            co_return;
        });
        co_await job.join();
        CHECK(heard == 1);
        CHECK(on.now() < 1h);
    }(world));
}

TEST_CASE("a group that goes with an error that was never asked for says so in one line, and only then") {
    enum { destroyed, joined, handled, canceled };
    for (const int way : {destroyed, joined, handled, canceled}) {
        const test::death seen = test::dies([way] {
            test::virtual_time world;
            world.run([](int how) -> task<> {
                task_group group;
                if (how == handled) group.on_error([](const std::exception_ptr&) {});
                group.spawn([how]() -> task<> {
                    co_await sleep_for(1s);
                    if (how != canceled) throw std::runtime_error("client 7 went");
                });
                group.spawn([]() -> task<> {
                    co_await sleep_for(1s);
                    throw std::logic_error("a second one");
                });
                if (how != canceled) co_await sleep_for(2s);
                if (how == joined) CHECK_THROWS(co_await group.join());
            }(way));
        });
        CHECK(seen.status == 0);
        if (way == destroyed) {
            CHECK(seen.said.find("client 7 went") != std::string::npos);
            CHECK(seen.said.find("on_error") != std::string::npos);
            CHECK(std::count(seen.said.begin(), seen.said.end(), '\n') == 1);
        } else {
            CHECK(seen.said.empty());
        }
    }
}

}  // namespace test_coro_task_group_errors
