#include <rdmacoro/coro/detail/stall_watch.hpp>

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>

#include "support/catch.hpp"

#include <chrono>

namespace test_coro_detail_stall_watch {

using namespace rdmacoro;
using namespace std::chrono_literals;

TEST_CASE("each stall is reported once, after its limit and a quarter at most", "[describe]") {
    manual_clock time;
    scheduler here(idle::spin{}, time);
    here.run([](scheduler& on) -> task<> {
        auto& watch = on.service<rdmacoro::detail::stall_watch>();
        on.watch_stalls(1s);
        co_await sleep_for(10s);
        CHECK(watch.reports() == 0);  // a sleep is no stall
        event flag;
        for (std::uint64_t stall = 1; stall < 4; ++stall) {
            auto waiting = start(flag.wait());
            co_await sleep_for(900ms);
            CHECK(watch.reports() == stall - 1);
            co_await sleep_for(650ms);
            CHECK(watch.reports() == stall);
            co_await sleep_for(10s);
            CHECK(watch.reports() == stall);
            flag.set();
            co_await waiting;
            flag.reset();
        }
        on.watch_stalls(0s);
        auto waiting = start(flag.wait());
        co_await sleep_for(10s);
        CHECK(watch.reports() == 3);
        flag.set();
        co_await waiting;
    }(here));
}

}  // namespace test_coro_detail_stall_watch
