#include <rdmacoro/coro/detail/ticks.hpp>

#include <rdmacoro/coro/clock.hpp>

#include "support/catch.hpp"

namespace test_coro_detail_ticks {

using namespace rdmacoro;
using namespace std::chrono_literals;

TEST_CASE(
    "a counter that is trusted has counted what is said to pass in microseconds once a millisecond is over") {
    const std::uint64_t few = detail::ticks_in_microseconds();
    CHECK(few == detail::ticks_in_microseconds());
    if (few == 0) SKIP_TEST("this processor's counter does not run at a constant rate");
    const time_point began = monotonic_clock::instance().now();
    const std::uint64_t before = detail::ticks();
    while (monotonic_clock::instance().now() < began + 1ms) {}
    CHECK(detail::ticks() - before >= few);
}

}  // namespace test_coro_detail_ticks
