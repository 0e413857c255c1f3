#include <rdmacoro/protocol/detail/refusal_timer.hpp>

#include <rdmacoro/coro/sleep_for.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/run.hpp"

namespace test_protocol_detail_refusal_timer {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
void count(void* times) noexcept { ++*static_cast<int*>(times); }
}  // namespace

TEST_CASE("a refusal is one of a key, of bounds, or of rights") {
    for (const errc code : {errc::bad_key, errc::out_of_bounds, errc::access_denied})
        CHECK(detail::is_refusal(make_error_code(code)));
    for (const errc code : {errc::closed, errc::peer_lost, errc::no_resources, errc::canceled})
        CHECK_FALSE(detail::is_refusal(make_error_code(code)));
    CHECK_FALSE(detail::is_refusal({}));
}

TEST_CASE("a refusal's time is over once, at the first time that was asked for") {
    virtual_time world;
    int times = 0;
    world.run([](virtual_time& w, int& counted) -> task<> {
        detail::refusal_timer timer(&counted, count);
        timer.start(w.on, w.on.now() + std::chrono::milliseconds(10));
        timer.start(w.on, w.on.now() + std::chrono::milliseconds(5));  // runs already
        co_await sleep_for(std::chrono::milliseconds(9));
        CHECK(counted == 0);
        co_await sleep_for(std::chrono::milliseconds(2));
        CHECK(counted == 1);
        co_await sleep_for(std::chrono::milliseconds(100));
        CHECK(counted == 1);
    }(world, times));
}

TEST_CASE("a refusal's time that is stopped, or whose owner ends, is never over") {
    virtual_time world;
    int times = 0;
    world.run([](virtual_time& w, int& counted) -> task<> {
        detail::refusal_timer stopped(&counted, count);
        stopped.start(w.on, w.on.now() + std::chrono::milliseconds(10));
        stopped.stop();
        stopped.stop();
        {
            detail::refusal_timer ended(&counted, count);
            ended.start(w.on, w.on.now() + std::chrono::milliseconds(10));
        }
        co_await sleep_for(std::chrono::milliseconds(100));
        CHECK(counted == 0);
    }(world, times));
}

}  // namespace test_protocol_detail_refusal_timer
