#include <rdmacoro/coro/detail/fan_out.hpp>

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/yield.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

namespace test_coro_detail_fan_out {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

/// Awaits two tasks, and counts their ends.
struct two_at_a_time {
    fan_out children;
    fan_out_slot<two_at_a_time, int> slots[2];
    task<int> what[2];
    int ends = 0;

    std::coroutine_handle<> slot_ended(std::size_t, const std::exception_ptr&) noexcept {
        ++ends;
        return children.one_ended();
    }
    void bind(const environment& env) noexcept { children.bind(env); }
    bool await_ready() {
        children.need_owner();
        for (std::size_t i = 0; i < 2; ++i) {
            slots[i].operation = this;
            slots[i].index = i;
            children.begin_with(run_into<task<int>>(slots[i], what[i]));
        }
        return children.goes_on();
    }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { children.wait(awaiting); }
    int await_resume() { return slots[0].ended_with.take() + slots[1].ended_with.take(); }
};

task<int> after(int turns, int value) {
    for (int n = 0; n < turns; ++n) co_await yield();
    co_return value;
}

}  // namespace

TEST_CASE("the last child that ends resumes the coroutine that awaits them all") {
    for (const int turns : {0, 1, 5}) {
        scheduler on;
        const int sum = on.run([](int n) -> task<int> {
            two_at_a_time both;
            both.what[0] = after(n, 1);
            both.what[1] = after(1, 2);
            const int added = co_await both;
            CHECK(both.ends == 2);
            co_return added;
        }(turns));
        CHECK(sum == 3);
    }
}

TEST_CASE("a fan-out that is destroyed while children run ends the process") {
    const test::death seen = test::dies([] {
        scheduler on;
        on.run([]() -> task<> {
            two_at_a_time both;
            both.what[0] = after(100, 1);
            both.what[1] = after(100, 2);
            both.bind({&running_scheduler(), {}});
            static_cast<void>(both.await_ready());
            co_return;
        }());
    });
    CHECK(seen.aborted);
    CHECK(seen.said.find("destroyed while pending") != std::string::npos);
}

}  // namespace test_coro_detail_fan_out
