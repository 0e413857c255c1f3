#include <rdmacoro/coro/clock.hpp>

#include "support/catch.hpp"

namespace test_coro_clock {

using namespace rdmacoro;  // but for `clock`, which the C library has too
using namespace std::chrono_literals;

TEST_CASE("the monotonic clock never goes back and waits for real time") {
    rdmacoro::clock& time = monotonic_clock::instance();
    time_point last = time.now();
    for (int i = 0; i < 1000; ++i) {
        const time_point now = time.now();
        REQUIRE(now >= last);
        last = now;
    }
    CHECK_FALSE(time.advance_to(last + 1h));
    CHECK(time.now() < last + 1h);
}

TEST_CASE("a manual clock stands still until it is moved") {
    manual_clock time;
    const time_point start = time.now();
    CHECK(time.now() == start);
    time.advance(5s);
    CHECK(time.now() == start + 5s);
    CHECK(time.advance_to(start + 1h));
    CHECK(time.now() == start + 1h);
}

TEST_CASE("a manual clock never goes back") {
    manual_clock time;
    time.advance(1h);
    const time_point now = time.now();
    CHECK(time.advance_to(now - 1min));
    CHECK(time.now() == now);
}

}  // namespace test_coro_clock
