#include <rdmacoro/transport/detail/link_timer.hpp>

#include <rdmacoro/coro/scheduler.hpp>

#include "support/catch.hpp"

namespace test_transport_detail_link_timer {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

struct timed {
    explicit timed(scheduler& on)
        : timer(on, this, [](void* self) noexcept { ++static_cast<timed*>(self)->expired; }) {}
    int expired = 0;
    detail::link_timer timer;
};

}  // namespace

TEST_CASE("a link's timer expires once, and can be set again") {
    scheduler on;
    timed l(on);
    CHECK_FALSE(l.timer.queued());
    l.timer.set(1ms);
    CHECK(l.timer.queued());
    on.run_until([&] { return l.expired == 1; });
    CHECK_FALSE(l.timer.queued());
    l.timer.set(1ms);
    on.run_until([&] { return l.expired == 2; });
}

TEST_CASE("setting a timer takes the place of its earlier setting; canceling ends it") {
    scheduler on;
    timed early(on);
    timed late(on);
    timed canceled(on);
    late.timer.set(1ms);
    late.timer.set(1h);
    canceled.timer.set(1ms);
    canceled.timer.cancel();
    canceled.timer.cancel();
    early.timer.set(5ms);
    on.run_until([&] { return early.expired == 1; });
    CHECK(late.expired == 0);
    CHECK(late.timer.queued());
    CHECK(canceled.expired == 0);
}

TEST_CASE("a timer that is destroyed does not expire") {
    scheduler on;
    timed other(on);
    int expired = 0;
    {
        detail::link_timer gone(on, &expired, [](void* count) noexcept { ++*static_cast<int*>(count); });
        gone.set(1ms);
        CHECK(gone.queued());
    }
    other.timer.set(3ms);
    on.run_until([&] { return other.expired == 1; });
    CHECK(expired == 0);
}

}  // namespace test_transport_detail_link_timer
