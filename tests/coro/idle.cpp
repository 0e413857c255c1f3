#include <rdmacoro/coro/idle.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <sched.h>

namespace test_coro_idle {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {
long switches = 0;  // that adaptive is told of
long told_switches() noexcept { return switches; }
}  // namespace

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

TEST_CASE("adaptive takes negative times for none, and endless ones for long") {
    manual_clock time;
    idle::adaptive none(duration::min(), duration::min());
    CHECK(after(none, time, 0us) == idle::action::park);
    idle::adaptive yields(-1s, duration::max());
    CHECK(after(yields, time, 0us) == idle::action::yield);
    CHECK(after(yields, time, 100us) == idle::action::yield);
    idle::adaptive spins(duration::max(), duration::max());
    CHECK(after(spins, time, 1us) == idle::action::spin);
}

TEST_CASE("adaptive goes back to spinning with the first progress, and counts from there") {
    manual_clock time;
    idle::adaptive strategy(10us, 100us, &told_switches);
    after(strategy, time, 0us);
    CHECK(after(strategy, time, 10us) == idle::action::yield);
    strategy.progress();
    CHECK(strategy.next(time) == idle::action::spin);
    CHECK(after(strategy, time, 9us) == idle::action::spin);
    CHECK(after(strategy, time, 50us) == idle::action::yield);
}

namespace {
/// How long it polls, spinning and yielding, in a wait of `length`; whether a message or a timer ends it.
duration polled(idle::adaptive& strategy, manual_clock& time, duration length, bool by_timer) {
    duration polling{};
    for (duration waited{}; waited < length; waited += 1us) {
        if (strategy.next(time) != idle::action::park) polling += 1us;
        time.advance(1us);
    }
    if (by_timer) {
        strategy.timer_expired();
    } else {
        strategy.progress();
    }
    return polling;
}
}  // namespace

TEST_CASE("adaptive polls for a hundredth of waits that are long, or that timers end") {
    for (const bool by_timer : {true, false}) {
        for (const duration length : {duration(4ms), duration(10ms), duration(20ms), duration(1s)}) {
            manual_clock time;
            idle::adaptive strategy;
            for (int n = 0; n < 10; ++n) static_cast<void>(polled(strategy, time, length, by_timer));
            CHECK(polled(strategy, time, length, by_timer) <= length / 50);
        }
    }
    manual_clock time;
    idle::adaptive strategy;
    for (int n = 0; n < 10; ++n) static_cast<void>(polled(strategy, time, 500us, true));
    CHECK(polled(strategy, time, 500us, true) <= 100us);
}

TEST_CASE("adaptive polls through waits that are short, at once after one of them that met it asleep") {
    manual_clock time;
    idle::adaptive strategy;
    for (int n = 0; n < 100; ++n) CHECK(polled(strategy, time, 100us, false) == 100us);
    for (int n = 0; n < 10; ++n) static_cast<void>(polled(strategy, time, 10ms, false));
    CHECK(polled(strategy, time, 100us, false) < 100us);
    for (int n = 0; n < 100; ++n) CHECK(polled(strategy, time, 100us, false) == 100us);
}

TEST_CASE(
    "adaptive that waits for an answer after each of its sleeps polls through the answers that come soon, "
    "and through no sleep") {
    constexpr duration sleep = 4ms;
    constexpr int cycles = 100;
    for (const duration also_asleep : {duration(0), duration(10ms), duration(100ms)}) {  // another coroutine
        for (const int answer : {10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900}) {
            CAPTURE(also_asleep.count(), answer);
            const duration length = std::chrono::microseconds(answer);
            manual_clock time;
            idle::adaptive strategy;
            duration polling{};
            int polled_through = 0;
            time_point other = also_asleep == 0ns ? time_point::max() : time.now() + also_asleep;
            // The waits until a timer or a message comes, before which the other coroutine's timer may come. True: it polled all the time.
            const auto wait = [&](time_point end, bool by_timer) {
                bool through = true;
                while (time.now() < end) {
                    const bool other_first = other < end;
                    const duration left = (other_first ? other : end) - time.now();
                    strategy.wait_begins(by_timer && !other_first ? end : other);
                    const duration so_long = polled(strategy, time, left, by_timer || other_first);
                    polling += so_long;
                    through &= so_long == left;
                    if (time.now() >= other) other += also_asleep;
                }
                return through;
            };
            for (int n = 0; n < 2 * cycles; ++n) {
                if (n == cycles) polling = {};  // it learned
                wait(time.now() + sleep, true);
                if (wait(time.now() + length, false) && n >= cycles) ++polled_through;
            }
            CHECK(polling <= cycles * (sleep + length) * 3 / 20);
            // Beside a sleep of 10 ms many waits for an answer are of the same kind as the sleep of 4 ms.
            if (length <= 400us) CHECK(polled_through >= (also_asleep == 10ms ? cycles / 2 : cycles * 3 / 4));
        }
    }
}

namespace {
/// How long it spins in a wait that ends when it has offered the core `offers` times.
duration spun_until_offered(idle::adaptive& strategy, manual_clock& time, int offers) {
    const time_point since = time.now();
    duration spun{};
    for (int offered = 0; offered < offers;) {
        const idle::action next = strategy.next(time);
        REQUIRE(next != idle::action::park);
        if (next == idle::action::yield && ++offered == 1) spun = time.now() - since;
        time.advance(100ns);
    }
    strategy.progress();
    return spun;
}
}  // namespace

TEST_CASE("adaptive offers a core early that its peer shares, and no longer when the offer does not end the "
          "waits") {
    manual_clock time;
    idle::adaptive strategy(idle::adaptive::default_spin, idle::adaptive::default_yield, &told_switches);
    CHECK(spun_until_offered(strategy, time, 1) >= 400us);
    for (int n = 0; n < 100; ++n) CHECK(spun_until_offered(strategy, time, 1 + n % 2) <= 5us);
    CHECK(polled(strategy, time, 20us, false) == 20us);  // the core was offered many times
    CHECK(spun_until_offered(strategy, time, 1) >= 100us);
}

TEST_CASE(
    "adaptive offers a core early that others took, however many offers ended the wait, and no longer when "
    "nobody takes it") {
    manual_clock time;
    idle::adaptive strategy(idle::adaptive::default_spin, idle::adaptive::default_yield, &told_switches);
    switches = 10;
    CHECK(spun_until_offered(strategy, time, 50) >= 400us);
    CHECK(spun_until_offered(strategy, time, 50) >= 200us);  // it was taken by no other thread
    for (int n = 0; n < 100; ++n) {
        ++switches;
        CHECK((spun_until_offered(strategy, time, 50) <= 2us) == (n > 0));
    }
    CHECK(spun_until_offered(strategy, time, 50) <= 2us);  // nobody took it this time
    CHECK(spun_until_offered(strategy, time, 50) >= 100us);
}

namespace {
/// A wait for a message that comes after `length`, beside a program that takes a time slice of 4 ms for each offer of the core.
/// How long it took.
duration beside_a_computation(idle::adaptive& strategy, manual_clock& time, duration length) {
    const time_point since = time.now();
    while (time.now() - since < length) {
        switch (strategy.next(time)) {
            case idle::action::spin: time.advance(500ns); break;
            case idle::action::yield: time.advance(4ms); break;
            case idle::action::park: time.advance(length - (time.now() - since) + 5us); break;
        }
    }
    strategy.progress();
    return time.now() - since;
}
}  // namespace

TEST_CASE("adaptive beside a program that computes parks instead of waiting for that program's time slices") {
    manual_clock time;
    idle::adaptive strategy;
    int slow = 0;
    for (int n = 0; n < 5000; ++n) {
        const bool late = n % 50 == 49;
        const duration took = beside_a_computation(strategy, time, late ? 1500us : 20us);
        if (!late && took > 30us) ++slow;
    }
    CHECK(slow < 50);  // a hundredth; with offers of the core nearly all of them
}

TEST_CASE(
    "adaptive on a core that its peer shares parks early for some waits after a third program's time slice, "
    "and then offers the core again") {
    manual_clock time;
    idle::adaptive strategy;
    for (int n = 0; n < 100; ++n) static_cast<void>(spun_until_offered(strategy, time, 1));
    for (int round = 0; round < 10; ++round) {
        CHECK(spun_until_offered(strategy, time, 1) <= 5us);
        idle::action next = strategy.next(time);
        for (; next == idle::action::spin; next = strategy.next(time)) time.advance(100ns);
        REQUIRE(next == idle::action::yield);
        time.advance(3ms);
        strategy.progress();
        int parked = 0;
        for (;; ++parked) {
            const time_point since = time.now();
            for (next = strategy.next(time); next == idle::action::spin; next = strategy.next(time))
                time.advance(100ns);
            CHECK(time.now() - since <= 5us);
            if (next != idle::action::park) break;
            time.advance(10us);
            strategy.progress();
        }
        CHECK(parked >= 7);
        CHECK(parked <= 16);
        strategy.progress();  // the offer was answered at once
        for (int n = 0; n < 10; ++n) CHECK(spun_until_offered(strategy, time, 1) <= 5us);
    }
}

TEST_CASE("adaptive on a core that several others share offers it early, also when it takes many offers") {
    // Each of five threads on one core waits for its turn; they begin with a whole time of polling each.
    constexpr int threads = 5;
    constexpr int rounds = 400;
    std::atomic<int> turn = 0;
    std::atomic<int> slow = 0;
    std::atomic<int> unpinned = 0;
    const int core = ::sched_getcpu();
    REQUIRE(core >= 0);
    const auto take_turns = [&](int me) {
        cpu_set_t here;
        CPU_ZERO(&here);
        CPU_SET(static_cast<unsigned>(core), &here);
        if (::sched_setaffinity(0, sizeof(here), &here) != 0) ++unpinned;
        monotonic_clock time;
        idle::adaptive strategy;
        for (int round = 0; round < rounds; ++round) {
            duration spun{};
            time_point polled_at = time.now();
            bool waited = false;
            while (turn.load(std::memory_order_acquire) != round * threads + me) {
                waited = true;
                switch (strategy.next(time)) {
                    case idle::action::spin: {
                        const time_point now = time.now();
                        spun += now - polled_at;
                        polled_at = now;
                        break;
                    }
                    case idle::action::yield:
                        std::this_thread::yield();
                        polled_at = time.now();
                        break;
                    case idle::action::park:
                        std::this_thread::sleep_for(50us);
                        polled_at = time.now();
                        break;
                }
            }
            if (waited) strategy.progress();
            if (spun > 200us) ++slow;
            turn.store(round * threads + me + 1, std::memory_order_release);
        }
    };
    std::vector<std::jthread> all;
    for (int me = 0; me < threads; ++me) all.emplace_back(take_turns, me);
    all.clear();
    CHECK(unpinned == 0);
    CHECK(turn == rounds * threads);
    CHECK(slow < rounds * threads / 20);
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

TEST_CASE("a scheduler parks through the sleeps of a coroutine that does nothing else, from the fourth on at "
          "the latest") {
    scheduler on;
    constexpr int sleeps = 20;
    on.run([]() -> task<> {
        for (int n = 0; n < sleeps; ++n) co_await sleep_for(4ms);
    }());
    CHECK(on.parks() >= sleeps - 4);  // by a full spin after each: none
}

TEST_CASE("a strategy that asks for it is told when timers alone made progress") {
    struct counts {
        int* timers;
        int* others;
        idle::action next(rdmacoro::clock&) noexcept { return idle::action::yield; }
        void progress() noexcept { ++*others; }
        void timer_expired() noexcept { ++*timers; }
    };
    int timers = 0;
    int others = 0;
    scheduler on(counts{&timers, &others});
    on.run([]() -> task<> { co_await sleep_for(1ms); }());
    CHECK(timers == 1);
    CHECK(others == 0);
    on.run([]() -> task<> {
        event set;
        std::thread other([&set, s = scheduler::current()] { s->post([&set] { set.set(); }); });
        co_await set.wait();
        other.join();
    }());
    CHECK(timers == 1);
}

TEST_CASE("a strategy that asks for it is told until when a coroutine sleeps, and of no other timer") {
    struct listens {
        std::vector<time_point>* told;
        idle::action next(rdmacoro::clock&) noexcept { return idle::action::yield; }
        void progress() noexcept {}
        void wait_begins(time_point sleeps_until) noexcept { told->push_back(sleeps_until); }
    };
    std::vector<time_point> told;
    manual_clock time;
    scheduler on(listens{&told}, time);
    const time_point began = time.now();
    on.run([]() -> task<> {
        co_await sleep_for(4ms);
        event never;
        static_cast<void>(co_await as_result(timeout(never.wait(), 2ms)));
        task_group both;
        both.spawn([&]() -> task<> { co_await sleep_for(3ms); });
        static_cast<void>(co_await as_result(timeout(never.wait(), 1ms)));  // due before that sleep
        co_await both.join();
    }());
    CHECK(told == std::vector{began + 4ms, time_point::max(), time_point::max(), began + 9ms});
}

}  // namespace test_coro_idle
