#include <rdmacoro/service/call_operation.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/catch.hpp"

#include <chrono>

namespace test_service_call_operation {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {
auto giving_its_limit() {
    const auto make = [](time_point until) -> task<std::uint32_t> { co_return detail::time_to_send(until); };
    return call_operation<std::uint32_t, decltype(make)>(decltype(make)(make));
}
}  // namespace

TEST_CASE("a call without a timeout has no limit to tell") {
    scheduler().run([]() -> task<> {
        const std::uint32_t limit = co_await giving_its_limit();
        CHECK(limit == 0);
    }());
}

TEST_CASE("a timeout of a call is told in microseconds, less what has passed, and one over an hour is not") {
    sim_world world;  // time stands still but for its timers
    scheduler on{idle::spin{}, world.time()};
    const sim::domain network(on, {.world = &world});
    on.run([]() -> task<> {
        const std::uint32_t limit = co_await timeout(giving_its_limit(), 2ms);
        CHECK(limit == 2000);
        const std::uint32_t rounded = co_await timeout(giving_its_limit(), 2000001ns);
        CHECK(rounded == 2001);
        const std::uint32_t long_one = co_await timeout(giving_its_limit(), 2h);
        CHECK(long_one == 0);
        const auto make = [](time_point until) -> task<std::uint32_t> {
            co_await sleep_for(500us);
            co_return detail::time_to_send(until);
        };
        auto later = call_operation<std::uint32_t, decltype(make)>(decltype(make)(make));
        const std::uint32_t left = co_await timeout(std::move(later), 2ms);
        CHECK(left == 1500);
    }());
}

TEST_CASE("a call that takes longer than its timeout ends with timed_out") {
    scheduler().run([]() -> task<> {
        const auto make = [](time_point) -> task<> { co_await sleep_for(1h); };
        auto late = call_operation<void, decltype(make)>(decltype(make)(make));
        const auto ended = co_await as_result(timeout(std::move(late), 1ms));
        CHECK(ended.error() == errc::timed_out);
    }());
}

}  // namespace test_service_call_operation
