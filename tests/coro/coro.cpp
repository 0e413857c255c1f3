#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/run.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <system_error>

// The rules of every awaitable of this room, shown for each in one list.

namespace test_coro_coro {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// The objects that the awaitables below wait for. Nothing is ready until `release`.
struct surroundings {
    event ready;
    rdmacoro::semaphore permits{0};
    channel<int> empty{1};
    channel<int> full{0};
    std::optional<thread_channel<int>> from_threads;
    std::optional<task_group> children;

    explicit surroundings(scheduler& on) { from_threads.emplace(on, 2); }

    /// Makes everything ready that waits.
    void release() {
        ready.set();
        permits.release();
        static_cast<void>(empty.try_send(1));
        static_cast<void>(full.try_receive());
        static_cast<void>(from_threads->try_push(1));
    }

    /// Nothing is ready again.
    void clear() {
        ready.reset();
        while (permits.try_acquire()) {}
        while (empty.try_receive()) {}
        while (from_threads->try_receive()) {}
    }
};

task<> in_a_task(surroundings& all) { co_await all.ready.wait(); }

struct wait_event {
    static constexpr const char* name = "event::wait";
    static auto make(surroundings& all) { return all.ready.wait(); }
};
struct acquire {
    static constexpr const char* name = "semaphore::acquire";
    static auto make(surroundings& all) { return all.permits.acquire(); }
};
struct receive {
    static constexpr const char* name = "channel::receive";
    static auto make(surroundings& all) { return all.empty.receive(); }
};
struct send {
    static constexpr const char* name = "channel::send";
    static auto make(surroundings& all) { return all.full.send(1); }
};
struct receive_from_threads {
    static constexpr const char* name = "thread_channel::receive";
    static auto make(surroundings& all) { return all.from_threads->receive(); }
};
struct sleep {
    static constexpr const char* name = "sleep_for";
    static auto make(surroundings&) { return sleep_for(1h); }
};
struct sleep_to {
    static constexpr const char* name = "sleep_until";
    static auto make(surroundings&) { return sleep_until(time_point(10000h)); }
};
struct a_task {
    static constexpr const char* name = "task";
    static auto make(surroundings& all) { return in_a_task(all); }
};
struct with_timeout {
    static constexpr const char* name = "timeout";
    static auto make(surroundings& all) { return timeout(all.ready.wait(), 1h); }
};
struct task_with_timeout {
    static constexpr const char* name = "timeout of a task";
    static auto make(surroundings& all) { return timeout(in_a_task(all), 1h); }
};
struct with_a_stop {
    static constexpr const char* name = "with_stop";
    static auto make(surroundings& all) {
        return with_stop(all.ready.wait(), std::stop_source().get_token());
    }
};
struct all_of_two {
    static constexpr const char* name = "when_all";
    static auto make(surroundings& all) { return when_all(all.ready.wait(), in_a_task(all)); }
};
struct any_of_two {
    static constexpr const char* name = "when_any";
    static auto make(surroundings& all) { return when_any(all.ready.wait(), in_a_task(all)); }
};
struct join {
    static constexpr const char* name = "task_group::join";
    static auto make(surroundings& all) {
        all.children.emplace();
        all.children->spawn(in_a_task, std::ref(all));
        return all.children->join();
    }
};

template <class Kind>
task<result<>> outcome_of(surroundings& all, local_stop_token token) {
    const auto ended = co_await as_result(with_stop(Kind::make(all), token));
    if (ended.has_value()) co_return result<>();
    co_return ended.error();
}

/// `release` ends it at once: not a sleep, nor what other threads give, which comes with the next turn.
template <class Kind>
constexpr bool ends_at_once = !std::string_view(Kind::name).starts_with("sleep") &&
                              std::string_view(Kind::name) != "thread_channel::receive";

/// Ends after `turns` turns of the scheduler.
task<> after_turns(int turns) {
    for (int i = 0; i < turns; ++i) co_await yield();
}

}  // namespace

#define EVERY_AWAITABLE                                                                                      \
    wait_event, acquire, receive, send, receive_from_threads, sleep, sleep_to, a_task, with_timeout,         \
        task_with_timeout, with_a_stop, all_of_two, any_of_two, join

TEMPLATE_TEST_CASE("each ends canceled at once when its token is stopped before it begins", "",
                   EVERY_AWAITABLE) {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        surroundings all(on.on);
        local_stop_source stop;
        stop.request_stop();
        const auto ended = co_await outcome_of<TestType>(all, stop.get_token());
        INFO(TestType::name);
        CHECK(ended.error() == errc::canceled);
        CHECK(on.now() == 0s);
    }(world));
}

TEMPLATE_TEST_CASE("each ends canceled when it is asked to stop while pending", "", EVERY_AWAITABLE) {
    for (int turns = 0; turns < 4; ++turns) {
        test::virtual_time world;
        world.run([](test::virtual_time& on, int before) -> task<> {
            surroundings all(on.on);
            local_stop_source stop;
            auto pending = start(outcome_of<TestType>(all, stop.get_token()));
            co_await after_turns(before);
            CHECK_FALSE(pending.done());
            stop.request_stop();
            const auto ended = co_await pending;
            INFO(TestType::name);
            CHECK(ended.error() == errc::canceled);
            CHECK(on.now() == 0s);
            // The canceled wait left nothing behind that a release would touch.
            all.release();
            co_await after_turns(3);
        }(world, turns));
    }
}

TEMPLATE_TEST_CASE("each ends as what came first says when stop and value come together", "",
                   EVERY_AWAITABLE) {
    for (const bool stop_first : {false, true}) {
        test::virtual_time world;
        world.run([](test::virtual_time& on, bool first) -> task<> {
            surroundings all(on.on);
            local_stop_source stop;
            auto pending = start(outcome_of<TestType>(all, stop.get_token()));
            co_await after_turns(2);
            if (first) stop.request_stop();
            all.release();
            stop.request_stop();
            const auto ended = co_await pending;
            INFO(TestType::name);
            CHECK(ended.error() ==
                  (!first && ends_at_once<TestType> ? std::error_code() : make_error_code(errc::canceled)));
            CHECK(on.now() == 0s);
        }(world, stop_first));
    }
}

TEMPLATE_TEST_CASE("each ends with a timeout when nothing comes", "", EVERY_AWAITABLE) {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        surroundings all(on.on);
        const auto ended = co_await as_result(timeout(TestType::make(all), 1s));
        INFO(TestType::name);
        CHECK(ended.error() == errc::timed_out);
        CHECK(on.now() == 1s);
    }(world));
}

TEMPLATE_TEST_CASE("each ends with its value when that comes", "", EVERY_AWAITABLE) {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        surroundings all(on.on);
        auto pending = start(outcome_of<TestType>(all, local_stop_token()));
        co_await after_turns(2);
        CHECK_FALSE(pending.done());
        all.release();
        const auto ended = co_await pending;
        INFO(TestType::name);
        CHECK(ended.has_value());
    }(world));
}

TEMPLATE_TEST_CASE("each can be started, moved before that, and canceled by an exception that unwinds", "",
                   EVERY_AWAITABLE) {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        surroundings all(on.on);
        auto unwinds = [](surroundings& s) -> task<> {
            auto made = TestType::make(s);
            auto moved = std::move(made);
            auto pending = start(std::move(moved));
            co_await after_turns(2);
            throw std::string("unwinds");
        };
        bool caught = false;
        try {
            co_await unwinds(all);
        } catch (const std::string&) {
            caught = true;
        }
        INFO(TestType::name);
        CHECK(caught);
        CHECK(on.now() == 0s);
    }(world));
}

TEMPLATE_TEST_CASE("each allocates nothing after warm-up", "", EVERY_AWAITABLE) {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    const std::size_t counted = world.run([](test::virtual_time& on) -> task<std::size_t> {
        surroundings all(on.on);
        std::size_t after_warm_up = 0;
        for (int i = 0; i < 20; ++i) {
            auto made = TestType::make(all);  // may allocate: a stop_source has a state on the heap
            const std::size_t before = test::allocations();
            {
                auto pending = start(std::move(made));
                co_await yield();
                all.release();
                co_await pending;
            }
            if (i >= 10) after_warm_up += test::allocations() - before;
            all.clear();
        }
        co_return after_warm_up;
    }(world));
    INFO(TestType::name);
    CHECK(counted == 0);
}

}  // namespace test_coro_coro
