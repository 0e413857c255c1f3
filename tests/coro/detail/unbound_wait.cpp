#include <rdmacoro/coro/detail/unbound_wait.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <array>
#include <coroutine>
#include <functional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>

namespace test_coro_detail_unbound_wait {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// An awaiter of other code: without `bind`.
struct gate {
    std::coroutine_handle<>* waits;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { *waits = awaiting; }
    int await_resume() const noexcept { return 5; }
};
/// An awaiter that is not moved.
struct fixed_gate : gate {
    explicit fixed_gate(gate of) noexcept : gate(of) {}
    fixed_gate(const fixed_gate&) = delete;
};
/// Awaitables that make their awaiter when they are awaited.
struct by_member {
    gate made;
    fixed_gate operator co_await() const noexcept { return fixed_gate(made); }
};
struct by_function {
    gate made;
};
fixed_gate operator co_await(const by_function& of) noexcept { return fixed_gate(of.made); }
struct by_reference {
    gate made;
    gate& operator co_await() & noexcept { return made; }
};

/// Each way to wait for one of them.
task<int> wait_by(std::string how, gate at) {
    if (how == "itself") co_return co_await at;
    if (how == "a member operator") co_return co_await by_member{at};
    if (how == "a free operator") co_return co_await by_function{at};
    if (how == "a reference") {
        by_reference here{at};
        co_return co_await here;
    }
    if (how == "as_result") {
        auto ended = co_await as_result(gate(at));
        co_return ended.value();
    }
    if (how == "as_result of a member operator") {
        auto ended = co_await as_result(by_member{at});
        co_return ended.value();
    }
    if (how == "timeout") co_return co_await timeout(gate(at), 1s);
    if (how == "with_stop") co_return co_await with_stop(gate(at), std::stop_token());
    if (how == "timeout in as_result") {
        auto ended = co_await as_result(timeout(gate(at), 1s));
        co_return ended.value();
    }
    auto [value] = co_await when_all(gate(at));
    co_return value;
}

bool is_counted(scheduler& on) {
    return on.describe().text().find("1 coroutine waits for what has no `bind`") != std::string::npos;
}

struct throwing {
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<>) { throw std::runtime_error("no memory"); }
    void await_resume() const noexcept {}
};

template <class Waits>
task<bool> throws(Waits waits) {
    try {
        co_await waits();
    } catch (const std::runtime_error&) {
        co_return true;
    }
    co_return false;
}

}  // namespace

TEST_CASE("a wait for an awaitable without bind is counted however it is awaited and a destructor that waits "
          "for it lets the others go on") {
    const std::string how = GENERATE(as<std::string>(), "itself", "a member operator", "a free operator",
                                     "a reference", "as_result", "as_result of a member operator", "timeout",
                                     "with_stop", "timeout in as_result", "when_all");
    CAPTURE(how);
    test::virtual_time world;
    world.run([](scheduler& on, std::string by) -> task<> {
        std::coroutine_handle<> waits;
        int got = 0;
        task_group others;
        {
            task_group group;
            group.spawn([&]() -> task<> { got = co_await wait_by(by, gate{&waits}); });
            while (!waits) co_await yield();
            CHECK(is_counted(on));
            others.spawn([&waits]() -> task<> {
                for (int n = 0; n < 5; ++n) co_await yield();
                std::exchange(waits, {}).resume();
            });
            if (!is_counted(on)) co_await others.join();  // instead of waiting for ever
        }
        CHECK(got == 5);
        CHECK_FALSE(is_counted(on));
        co_await others.join();
    }(world.on, how));
}

TEST_CASE("destructors that wait for awaitables without bind nest as deep as it comes") {
    test::virtual_time world;
    world.run([]() -> task<> {
        std::array<std::coroutine_handle<>, 40> waits{};
        int ended = 0;
        task_group others;
        for (std::coroutine_handle<>& at : waits) {
            others.spawn(
                [](std::coroutine_handle<>& of, int& count) -> task<> {
                    task_group group;
                    group.spawn([&]() -> task<> {
                        co_await gate{&of};
                        ++count;
                    });
                    while (!of) co_await yield();
                },
                std::ref(at), std::ref(ended));
        }
        others.spawn([&]() -> task<> {
            for (std::coroutine_handle<>& at : waits) {
                while (!at) co_await yield();
            }
            for (int n = 0; n < 5; ++n) co_await yield();
            for (std::coroutine_handle<>& at : waits) std::exchange(at, {}).resume();
        });
        co_await others.join();
        CHECK(ended == 40);
    }());
}

TEST_CASE("a wait that does not begin as it throws is not counted any more") {
    test::virtual_time world;
    world.run([](scheduler& on) -> task<> {
        const bool plain = co_await throws([] { return throwing(); });
        CHECK(plain);
        CHECK_FALSE(is_counted(on));
        const bool adapted = co_await throws([] { return with_stop(throwing(), std::stop_token()); });
        CHECK(adapted);
        CHECK_FALSE(is_counted(on));
    }(world.on));
}

TEST_CASE("a wait is counted until it is destroyed at the latest") {
    scheduler on;
    {
        detail::unbound_wait one(&on);
        one.began();
        CHECK(is_counted(on));
    }
    CHECK_FALSE(is_counted(on));
}

}  // namespace test_coro_detail_unbound_wait
