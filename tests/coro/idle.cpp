#include <rdmacoro/coro/idle.hpp>

#include <rdmacoro/coro/scheduler.hpp>

#include "support/catch.hpp"

using namespace rdmacoro;
using namespace std::chrono_literals;

TEST_CASE("spin always spins and yield always yields") {
    manual_clock time;
    idle::spin spin;
    idle::yield yield;
    for (int i = 0; i < 100; ++i) {
        time.advance(1h);
        CHECK(spin.next(time) == idle::action::spin);
        CHECK(yield.next(time) == idle::action::yield);
    }
    spin.progress();
    yield.progress();
}

namespace {
/// The action after another `by` without progress. It looks at the clock at least once in so many turns.
idle::action after(idle::adaptive& strategy, manual_clock& time, duration by) {
    time.advance(by);
    idle::action last = idle::action::spin;
    for (int turn = 0; turn < 64; ++turn) last = strategy.next(time);
    return last;
}
}  // namespace

TEST_CASE("adaptive spins, then yields, then parks, as long as nothing moves") {
    manual_clock time;
    idle::adaptive strategy(10us, 100us);
    CHECK(after(strategy, time, 0us) == idle::action::spin);
    CHECK(after(strategy, time, 9us) == idle::action::spin);
    CHECK(after(strategy, time, 1us) == idle::action::yield);
    CHECK(after(strategy, time, 99us) == idle::action::yield);
    CHECK(after(strategy, time, 1us) == idle::action::park);
    CHECK(after(strategy, time, 1h) == idle::action::park);
}

TEST_CASE("adaptive goes back to spinning with the first progress, and counts from there") {
    manual_clock time;
    idle::adaptive strategy(10us, 100us);
    after(strategy, time, 0us);
    CHECK(after(strategy, time, 1s) == idle::action::park);
    strategy.progress();
    CHECK(strategy.next(time) == idle::action::spin);
    CHECK(after(strategy, time, 9us) == idle::action::spin);
    CHECK(after(strategy, time, 50us) == idle::action::yield);
}

TEST_CASE("adaptive that may not spin or yield parks at once") {
    manual_clock time;
    idle::adaptive strategy(0us, 0us);
    CHECK(strategy.next(time) == idle::action::park);
    CHECK(strategy.next(time) == idle::action::park);
}

TEST_CASE("adaptive reads the clock seldom while it spins") {
    struct counting final : rdmacoro::clock {
        int reads = 0;
        time_point now() noexcept override {
            ++reads;
            return {};
        }
        bool advance_to(time_point) noexcept override { return false; }
    } time;
    idle::adaptive strategy;
    for (int turn = 0; turn < 3200; ++turn) CHECK(strategy.next(time) == idle::action::spin);
    CHECK(time.reads <= 101);
}

TEST_CASE("a scheduler knows whether its strategy ever lets it sleep") {
    CHECK_FALSE(scheduler(idle::spin{}).may_park());
    CHECK_FALSE(scheduler(idle::yield{}).may_park());
    CHECK(scheduler(idle::adaptive{}).may_park());
    struct says_nothing {
        idle::action next(rdmacoro::clock&) noexcept { return idle::action::yield; }
        void progress() noexcept {}
    };
    CHECK(scheduler(says_nothing{}).may_park());
}
