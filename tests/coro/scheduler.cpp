#include <rdmacoro/coro/scheduler.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace test_coro_scheduler {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<> note(std::vector<int>& order, int number, int times = 1) {
    for (int i = 0; i < times; ++i) {
        order.push_back(number);
        co_await yield();
    }
}

task<int> plus_one(int value) { co_return value + 1; }

}  // namespace

TEST_CASE("run gives the value of its task and can be called again") {
    scheduler on;
    CHECK(scheduler::current() == nullptr);
    CHECK(on.run(plus_one(1)) == 2);
    CHECK(on.run(plus_one(2)) == 3);
    CHECK(scheduler::current() == nullptr);
}

TEST_CASE("run throws what its task threw") {
    scheduler on;
    CHECK_THROWS_AS(on.run([]() -> task<> {
        throw std::out_of_range("x");
        co_return;
    }()),
                    std::out_of_range);
    CHECK(on.run(plus_one(1)) == 2);
}

TEST_CASE("run refuses an empty task") {
    scheduler on;
    CHECK_THROWS_AS(on.run(task<>()), error);
    CHECK_THROWS_AS(on.run(task<>(), std::stop_token()), error);
}

TEST_CASE("a task that has ended is not run again") {
    const test::death seen = test::dies([] {
        scheduler on;
        auto ended = plus_one(1);
        CHECK(on.run([](auto& of) -> task<int> { co_return co_await std::move(of); }(ended)) == 2);
        static_cast<void>(on.run(std::move(ended)));
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("a task is awaited once"));
}

namespace {
/// Waits until a posted function resumes it by its handle: without `bind`, no scheduler knows of it.
struct resumed_by_handle {
    std::coroutine_handle<> waits{};
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { waits = awaiting; }
    void await_resume() const noexcept {}
};
task<> once(resumed_by_handle& of) { co_await of; }
}  // namespace

TEST_CASE("tasks whose coroutines are resumed by their handles all go on, however many") {
    scheduler on{idle::spin{}};
    int ended = 0;
    auto running = on.start([](scheduler& by, int& count) -> task<> {
        for (; count < 500; ++count) {
            resumed_by_handle one;
            by.post([&one] { std::exchange(one.waits, {}).resume(); });
            co_await once(one);
        }
    }(on, ended));
    for (int n = 0; n < 10'000 && !running.done(); ++n) on.turn();
    CHECK(ended == 500);
    REQUIRE(running.done());
}

TEST_CASE("coroutines that are ready are resumed in turn") {
    test::virtual_time world;
    std::vector<int> order;
    world.run([](std::vector<int>& list) -> task<> {
        task_group group;
        for (int number = 1; number <= 3; ++number) group.spawn(note, std::ref(list), number, 3);
        co_await group.join();
    }(order));
    CHECK(order == std::vector<int>{1, 2, 3, 1, 2, 3, 1, 2, 3});
}

TEST_CASE("a coroutine can tell whether others are resumed before the sources are polled") {
    scheduler on;
    std::vector<bool> others;
    on.run([](std::vector<bool>& seen) -> task<> {
        task_group three;
        for (int n = 0; n < 3; ++n) {
            three.spawn([&seen]() -> task<> {
                co_await yield();
                seen.push_back(scheduler::current()->others_follow());
            });
        }
        co_await three.join();
    }(others));
    CHECK(others == std::vector<bool>{true, true, false});
}

TEST_CASE("a busy coroutine starves neither timers nor posts nor sources") {
    struct source final : progress_source {
        int polls = 0;
        bool poll() noexcept override {
            ++polls;
            return false;
        }
    } polled;
    scheduler on;
    on.add_source(polled);
    bool posted = false;
    on.run([](scheduler& s, bool& flag, source& src) -> task<> {
        s.post([&flag] { flag = true; });
        auto timer = start(sleep_for(1us));
        while (!timer.done() || !flag || src.polls == 0) co_await yield();
        co_await timer;
    }(on, posted, polled));
    CHECK(posted);
}

TEST_CASE("the current scheduler is the innermost that runs") {
    scheduler outer;
    outer.run([](scheduler& out) -> task<> {
        CHECK(scheduler::current() == &out);
        scheduler inner;
        inner.run([](scheduler& in) -> task<> {
            CHECK(scheduler::current() == &in);
            co_return;
        }(inner));
        CHECK(scheduler::current() == &out);
        co_return;
    }(outer));
}

TEST_CASE("a nested run goes on with what the outer one was resuming") {
    test::virtual_time world;
    std::vector<int> order;
    world.run([](test::virtual_time& on, std::vector<int>& list) -> task<> {
        task_group group;
        // Both are ready in one batch; the first needs the second to run before it can go on.
        event second_ran;
        group.spawn([&]() -> task<> {
            list.push_back(1);
            on.on.run_until([&] { return second_ran.is_set(); });
            list.push_back(3);
            co_return;
        });
        group.spawn([&]() -> task<> {
            list.push_back(2);
            second_ran.set();
            co_return;
        });
        co_await group.join();
    }(world, order));
    CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("timers fire at their time, in order, without waiting in virtual time") {
    test::virtual_time world;
    std::vector<std::string> order;
    world.run([](test::virtual_time& on, std::vector<std::string>& list) -> task<> {
        task_group group;
        for (const auto after : {3h, 1h, 2h}) {
            group.spawn([&on, &list, after]() -> task<> {
                co_await sleep_for(after);
                CHECK(on.now() == after);
                list.push_back(std::to_string(after.count()));
            });
        }
        co_await group.join();
    }(world, order));
    CHECK(order == std::vector<std::string>{"1", "2", "3"});
    CHECK(world.now() == 3h);
}

TEST_CASE("posts are called on the scheduler's thread, those of one thread in order") {
    scheduler on;
    constexpr int count = 2000;
    std::vector<int> seen;
    std::thread::id thread_of_calls;
    std::thread poster;
    on.run([](scheduler& s, std::vector<int>& list, std::thread::id& id, std::thread& t) -> task<> {
        event all;
        t = std::thread([&] {
            for (int i = 0; i < count; ++i) {
                s.post([&list, &id, &all, i] {
                    list.push_back(i);
                    id = std::this_thread::get_id();
                    if (i + 1 == count) all.set();
                });
            }
        });
        co_await all.wait();
    }(on, seen, thread_of_calls, poster));
    poster.join();
    CHECK(thread_of_calls == std::this_thread::get_id());
    REQUIRE(seen.size() == count);
    for (int i = 0; i < count; ++i) REQUIRE(seen[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("posts of many threads all arrive") {
    scheduler on;
    constexpr int threads = 4;
    constexpr int each = 500;
    int seen = 0;
    std::vector<std::thread> posters;
    on.run([](scheduler& s, int& count, std::vector<std::thread>& list) -> task<> {
        event all;
        for (int t = 0; t < threads; ++t) {
            list.emplace_back([&] {
                for (int i = 0; i < each; ++i) {
                    s.post([&] {
                        if (++count == threads * each) all.set();
                    });
                }
            });
        }
        co_await all.wait();
    }(on, seen, posters));
    for (auto& poster : posters) poster.join();
    CHECK(seen == threads * each);
}

TEST_CASE("no wake-up is lost between the last look and the sleep") {
    // Parks whenever nothing moves; the other thread posts at every moment around that.
    constexpr int rounds = 20000;
    scheduler on(idle::adaptive(0ns, 0ns));
    std::atomic<int> answered{0};
    std::thread poster;
    on.run([](scheduler& s, std::atomic<int>& answers, std::thread& t) -> task<> {
        event posted;
        event* where = &posted;
        t = std::thread([&s, &answers, where] {
            for (int i = 1; i <= rounds; ++i) {
                for (int spin = 0; spin < i % 257; ++spin) answers.load(std::memory_order_relaxed);
                s.post([where] { where->set(); });
                while (answers.load(std::memory_order_acquire) != i) std::this_thread::yield();
            }
        });
        for (int i = 1; i <= rounds; ++i) {
            co_await posted.wait();
            posted.reset();
            answers.store(i, std::memory_order_release);
        }
    }(on, answered, poster));
    poster.join();
    CHECK(answered.load() == rounds);
    CHECK(on.parks() > 0);
}

TEST_CASE("a parked scheduler wakes for its timers") {
    scheduler on(idle::adaptive(0ns, 0ns));
    const time_point began = on.now();
    on.run([]() -> task<> { co_await sleep_for(2ms); }());
    CHECK(on.now() >= began + 2ms);
    CHECK(on.parks() > 0);
}

TEST_CASE("a scheduler for which no descriptor is left sleeps and hears what other threads post") {
    scheduler on(idle::adaptive(0ns, 0ns));
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    const int lowest_free = ::dup(2);
    REQUIRE(lowest_free > 2);
    ::close(lowest_free);
    none.rlim_cur =
        GENERATE_COPY(rlim_t{0}, static_cast<rlim_t>(lowest_free));  // also less than the process has
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    std::thread poster;
    on.run([](scheduler& s, std::thread& t) -> task<> {
        co_await sleep_for(200ms);
        event posted;
        t = std::thread([&s, &posted] { s.post([&posted] { posted.set(); }); });
        co_await posted.wait();
    }(on, poster));
    const std::uint64_t without = on.parks();
    poster.join();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(without >= 10);  // of a millisecond each
    CHECK(without <= 400);
    on.run([]() -> task<> { co_await sleep_for(100ms); }());
    CHECK(on.parks() <= without + 5);
}

TEST_CASE("a node that was posted can be taken back until it is called") {
    struct counting : detail::posted_node {
        int calls = 0;
        counting() {
            call = [](detail::posted_node& self) noexcept { ++static_cast<counting&>(self).calls; };
        }
    };
    scheduler on;
    counting nodes[4];
    for (auto& node : nodes) on.post(node);
    CHECK(on.withdraw(nodes[1]));
    CHECK_FALSE(on.withdraw(nodes[1]));
    CHECK(on.withdraw(nodes[3]));
    on.post(nodes[1]);
    CHECK(on.run_posted());
    CHECK_FALSE(on.run_posted());
    CHECK_FALSE(on.withdraw(nodes[0]));
    CHECK(nodes[0].calls == 1);
    CHECK(nodes[1].calls == 1);
    CHECK(nodes[2].calls == 1);
    CHECK(nodes[3].calls == 0);
}

TEST_CASE("what is posted before the scheduler goes is still called") {
    int calls = 0;
    {
        scheduler on;
        on.post([&calls] { ++calls; });
    }
    CHECK(calls == 1);
}

TEST_CASE("a service is made once, by its type, and goes with its scheduler, last made first") {
    static std::vector<std::string> log;
    log.clear();
    struct first {
        explicit first(scheduler&) {}
        ~first() { log.push_back("first"); }
    };
    struct second {
        scheduler* owner;
        explicit second(scheduler& of) : owner(&of) { of.service<first>(); }
        ~second() { log.push_back("second"); }
    };
    {
        scheduler on;
        second& made = on.service<second>();
        CHECK(made.owner == &on);
        CHECK(&on.service<second>() == &made);
        CHECK(&on.service<first>() == &on.service<first>());
    }
    CHECK(log == std::vector<std::string>{"second", "first"});  // the first was made for the second
}

TEST_CASE("run asks its task to stop when the given token is stopped by another thread") {
    for (int round = 0; round < 300; ++round) {
        scheduler on(idle::adaptive(0ns, 0ns));
        std::stop_source stop;
        std::atomic<bool> waits{false};
        std::thread stopper([&] {
            while (!waits.load() && round % 2 == 0) std::this_thread::yield();
            stop.request_stop();
        });
        result<> ended;
        on.run(
            [](std::atomic<bool>& w, result<>& out) -> task<> {
                event never;
                w = true;
                out = co_await as_result(never.wait());
            }(waits, ended),
            stop.get_token());
        stopper.join();
        REQUIRE(ended.error() == errc::canceled);
    }
}

TEST_CASE("run with a token that is never stopped ends as without") {
    scheduler on;
    std::stop_source stop;
    CHECK(on.run(plus_one(4), stop.get_token()) == 5);
    stop.request_stop();  // the bridge is gone
    CHECK(on.run(plus_one(5), stop.get_token()) == 6);
}

namespace {

/// Resumes what awaits it when it is polled: after a turn has called what was posted.
struct resumes_when_polled final : progress_source {
    explicit resumes_when_polled(scheduler& of) : on(of) { on.add_source(*this); }
    bool poll() noexcept override {
        if (!waits) return false;
        on.resume(std::exchange(waits, {}));
        return true;
    }
    static bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { waits = awaiting; }
    static void await_resume() noexcept {}

    scheduler& on;
    std::coroutine_handle<> waits{};
};

void stop_by_another_thread(std::stop_source& stop) {
    std::thread([&stop] { stop.request_stop(); }).join();
}

}  // namespace

TEST_CASE("a stop that comes when the task has just ended has no effect") {
    scheduler on;
    resumes_when_polled polled(on);
    for (int round = 0; round < 200; ++round) {
        std::stop_source stop;
        // The last thing that the task does; every other time the scheduler has no turn for the stop before it disconnects.
        on.run(
            [](resumes_when_polled& last, std::stop_source& to_stop, bool at_once) -> task<> {
                if (at_once) co_await last;
                stop_by_another_thread(to_stop);
            }(polled, stop, round % 2 == 0),
            stop.get_token());
        REQUIRE_FALSE(on.run_posted());
        std::stop_source other;
        const bool stopped =
            on.run([]() -> task<bool> { co_return !co_await as_result(yield()); }(), other.get_token());
        REQUIRE_FALSE(stopped);
    }
}

TEST_CASE("a stop that races with the end of the task leaves nothing behind") {
    scheduler on;
    for (int round = 0; round < 1000; ++round) {
        std::stop_source stop;
        std::atomic<bool> go{false};
        std::thread stopper([&] {
            while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
            stop.request_stop();
        });
        on.run(
            [](std::atomic<bool>& flag, int yields) -> task<> {
                flag.store(true, std::memory_order_release);
                for (int i = 0; i < yields; ++i) static_cast<void>(co_await as_result(yield()));
            }(go, round % 50),
            stop.get_token());
        stopper.join();
        REQUIRE_FALSE(on.run_posted());
    }
}

TEST_CASE("run_until does not ask again once its condition was true") {
    for (const int asked_before : {0, 1, 2, 3}) {
        scheduler on{idle::spin{}};
        int asked = 0;
        int yes = 0;
        on.run_until([&] {
            const bool over = asked++ >= asked_before;
            if (over) ++yes;
            return over;
        });
        CHECK(yes == 1);
    }
}

TEST_CASE("a spinning scheduler reads the clock for its timers in one of sixteen turns") {
    struct counted final : rdmacoro::clock {
        time_point now() noexcept override {
            ++reads;
            return at;
        }
        bool advance_to(time_point) noexcept override { return false; }
        time_point at{};
        int reads = 0;
    };
    counted time;
    scheduler on{idle::spin{}, time};
    int reads = 0;
    on.run([](scheduler& s, counted& clock, int& seen) -> task<> {
        auto timer = start(sleep_for(1h));
        int turns = 0;
        s.run_until([&] { return turns++ >= 1600; });
        seen = clock.reads;
        clock.at += 2h;
        co_await timer;
    }(on, time, reads));
    CHECK(reads > 10);
    CHECK(reads <= 120);
}

namespace {
/// Computes for so long.
void compute_for(duration time) {
    const time_point until = monotonic_clock::instance().now() + time;
    while (monotonic_clock::instance().now() < until) {}
}
}  // namespace

TEST_CASE("a timer is late by the turns that pass in microseconds, not by a number of long ones") {
    scheduler on;
    int turns = 0;
    on.run([](int& until_due) -> task<> {
        bool due = false;
        task_group beside;
        beside.spawn([&]() -> task<> {
            co_await sleep_for(1us);
            due = true;
        });
        co_await yield();
        while (!due) {
            compute_for(1ms);
            ++until_due;
            co_await yield();
        }
        co_await beside.join();
    }(turns));
    CHECK(turns <= 3);  // by turns: 64
}

namespace {
/// Computes: a clock that stands still otherwise goes on by so much. Counts that.
struct computing {
    manual_clock& time;
    duration each;
    int times = 0;
    void operator()() {
        time.advance(each);
        ++times;
    }
};

/// Computes and yields, until told to stop.
task<> keeps_busy(computing& work, const bool& stop) {
    while (!stop) {
        work();
        co_await yield();
    }
}
}  // namespace

TEST_CASE("a coroutine that sleeps is late by one resumption, however many coroutines are ready") {
    for (const auto& [coroutines, each] : {std::pair<int, duration>(40, 100us), {30, 5ms}, {2000, 1us}}) {
        CAPTURE(coroutines, each.count());
        test::virtual_time world;
        computing work{world.time, each};
        int sleeps = 0;
        world.run([](test::virtual_time& on, computing& by_others, int count, int& done) -> task<> {
            bool stop = false;
            task_group others;
            for (int n = 0; n < count; ++n) others.spawn(keeps_busy, std::ref(by_others), std::cref(stop));
            for (; done < 20; ++done) {
                const time_point due = on.time.now() + 1ms;
                co_await sleep_until(due);
                // It is noticed after a slice and the rest of the resumption that the slice ends with.
                CHECK(on.time.now() - due <= by_others.each + 50us);
            }
            CHECK(by_others.times >= 19);
            stop = true;
            co_await others.join();
        }(world, work, coroutines, sleeps));
        CHECK(sleeps == 20);
    }
}

TEST_CASE("a timeout stops its operation in time, however many coroutines are ready") {
    test::virtual_time world;
    computing work{world.time, 1ms};
    int timeouts = 0;
    world.run([](test::virtual_time& on, computing& by_others, int& ended) -> task<> {
        bool stop = false;
        task_group others;
        for (int n = 0; n < 100; ++n) others.spawn(keeps_busy, std::ref(by_others), std::cref(stop));
        event never;
        for (int n = 0; n < 10; ++n) {
            const time_point due = on.time.now() + 3ms;
            const auto waited = co_await as_result(timeout(never.wait(), 3ms));
            if (waited.error() == errc::timed_out) ++ended;
            CHECK(on.time.now() - due <= 1ms + 50us);
        }
        stop = true;
        co_await others.join();
    }(world, work, timeouts));
    CHECK(timeouts == 10);
}

namespace {
/// Sleeps for no time, again and again.
task<> keeps_due(computing& work, const bool& stop) {
    while (!stop) {
        work();
        co_await sleep_for(0s);
    }
}
}  // namespace

TEST_CASE("coroutines that sleep for no time again and again keep no other one from its turn") {
    test::virtual_time world;
    computing by_sleepers{world.time, 100us};  // each takes a slice and more
    computing by_others{world.time, 100us};
    world.run([](computing& asleep, computing& busy) -> task<> {
        bool stop = false;
        task_group all;
        for (int n = 0; n < 2; ++n) all.spawn(keeps_due, std::ref(asleep), std::cref(stop));
        for (int n = 0; n < 3; ++n) all.spawn(keeps_busy, std::ref(busy), std::cref(stop));
        while (asleep.times + busy.times < 1000) co_await yield();
        stop = true;
        co_await all.join();
    }(by_sleepers, by_others));
    CHECK(by_sleepers.times >= 300);
    CHECK(by_others.times >= 300);
}

TEST_CASE(
    "hundreds of coroutines that are due in every turn take no more than their share from as many others") {
    test::virtual_time world;
    computing by_sleepers{world.time, 1us};
    computing by_others{world.time, 1us};
    world.run([](computing& asleep, computing& busy) -> task<> {
        bool stop = false;
        task_group all;
        for (int n = 0; n < 200; ++n) {
            all.spawn(keeps_due, std::ref(asleep), std::cref(stop));
            all.spawn(keeps_busy, std::ref(busy), std::cref(stop));
        }
        while (asleep.times + busy.times < 100'000) co_await yield();
        stop = true;
        co_await all.join();
    }(by_sleepers, by_others));
    CHECK(by_sleepers.times >= 30'000);
    CHECK(by_others.times >= 30'000);
}

TEST_CASE(
    "coroutines that become due together go on in the order of their times, and the others between them") {
    test::virtual_time world;
    computing work{world.time, 1ms};
    std::vector<int> order;
    world.run([](test::virtual_time& on, computing& by_others, std::vector<int>& list) -> task<> {
        bool stop = false;
        task_group others;
        others.spawn(keeps_busy, std::ref(by_others), std::cref(stop));
        task_group sleepers;
        for (int number = 0; number < 10; ++number) {
            sleepers.spawn([&, number]() -> task<> {
                co_await sleep_for(std::chrono::microseconds(100 + number));
                on.time.advance(100us);
                list.push_back(number);
            });
        }
        const int before = by_others.times;
        co_await sleepers.join();
        CHECK(by_others.times - before >= 9);
        stop = true;
        co_await others.join();
    }(world, work, order));
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("posted functions are called for a slice at a time, and a timer is not late by all of them") {
    test::virtual_time world;
    constexpr int posts = 1000;
    computing by_posts{world.time, 100us};
    int called_when_due = 0;
    world.run([](test::virtual_time& on, computing& work, int& when_due) -> task<> {
        task_group beside;
        beside.spawn([&]() -> task<> {
            co_await sleep_for(1ms);
            when_due = work.times;
        });
        co_await yield();
        for (int n = 0; n < posts; ++n) on.on.post([&work] { work(); });
        co_await beside.join();
        while (work.times < posts) co_await yield();
    }(world, by_posts, called_when_due));
    CHECK(called_when_due >= 10);
    CHECK(called_when_due <= 12);
    CHECK(by_posts.times == posts);
}

TEST_CASE(
    "timers that are due at one time fire for a slice in each turn, and the sources are polled meanwhile") {
    constexpr std::size_t many = 100'000;
    static std::size_t fired;
    struct counting : detail::timer_node {
        counting() {
            expired = [](detail::timer_node&) noexcept { ++fired; };
        }
    };
    struct watching final : progress_source {
        std::size_t before = 0;
        std::size_t most = 0;
        bool poll() noexcept override {
            most = std::max(most, fired - std::exchange(before, fired));
            return false;
        }
        int wake_fd() noexcept override { return -1; }
        void arm() noexcept override {}
        void disarm() noexcept override {}
    } source;
    scheduler on;
    on.add_source(source);
    fired = 0;
    std::vector<counting> timers(many);
    const time_point due = on.now();
    for (counting& each : timers) {
        each.deadline = due;
        on.add_timer(each);
    }
    std::size_t turns = 0;
    while (fired != many && turns != many) {
        on.turn();
        ++turns;
    }
    on.turn();
    CHECK(fired == many);
    CHECK(source.most < many / 4);  // in 50 us
    CHECK(turns > 4);
    on.remove_source(source);
}

TEST_CASE("a timer whose function runs the scheduler takes no coroutine out of its order") {
    test::virtual_time world;
    struct nested : detail::timer_node {
        scheduler* on;
        std::vector<int>* order;
        int* ran;
    };
    std::vector<int> order;
    int ran = 0;
    nested timer;
    timer.on = &world.on;
    timer.order = &order;
    timer.ran = &ran;
    timer.deadline = world.time.now() + 997us;  // noticed with the next ones
    timer.expired = [](detail::timer_node& self) noexcept {
        nested& own = static_cast<nested&>(self);
        own.on->run_until([&own] { return own.order->size() >= 2; });
        ++*own.ran;
    };
    world.run([](test::virtual_time& on, std::vector<int>& list, nested& of) -> task<> {
        task_group group;
        task_group busy;
        bool stop = false;
        computing work{on.time, 10us};
        for (int n = 0; n < 3; ++n) busy.spawn(keeps_busy, std::ref(work), std::cref(stop));
        on.on.add_timer(of);
        group.spawn([&]() -> task<> {
            co_await sleep_for(998us);
            co_await note(list, 1, 2);
        });
        group.spawn([&]() -> task<> {
            co_await sleep_for(999us);
            co_await note(list, 2, 2);
        });
        co_await group.join();
        stop = true;
        co_await busy.join();
    }(world, order, timer));
    CHECK(ran == 1);
    CHECK(order == std::vector<int>{1, 2, 1, 2});
}

TEST_CASE(
    "what was made ready while a timer's function ran the scheduler goes behind what was ready before it") {
    test::virtual_time world;
    struct nested : detail::timer_node {
        scheduler* on;
        std::vector<int>* order;
        event late;
        std::size_t turns = 0;
        std::size_t order_at_end = 0;
    };
    std::vector<int> order;
    nested timer;
    timer.on = &world.on;
    timer.order = &order;
    timer.deadline = world.time.now() + 1ms;
    timer.expired = [](detail::timer_node& self) noexcept {
        nested& own = static_cast<nested&>(self);
        own.on->run_until([&own] {
            if (own.turns++ == 0) return false;
            own.late.set();
            return true;
        });
        own.order_at_end = own.order->size();
    };
    world.run([](test::virtual_time& on, std::vector<int>& list, nested& of) -> task<> {
        // The only timer, so that no other one expires while the scheduler runs within it.
        on.on.add_timer(of);
        task_group all;
        bool stop = false;
        for (int number : {1, 2})
            all.spawn([&, number]() -> task<> {
                while (!stop) {
                    list.push_back(number);
                    on.time.advance(10us);
                    co_await yield();
                }
            });
        co_await of.late.wait();
        list.push_back(3);
        stop = true;
        co_await all.join();
    }(world, order, timer));
    CHECK(timer.turns == 2);
    REQUIRE(order.size() >= timer.order_at_end + 3);
    const auto after = order.begin() + static_cast<std::ptrdiff_t>(timer.order_at_end);
    CHECK(std::vector<int>(after, after + 3) == std::vector<int>{1, 2, 3});
}

TEST_CASE("coroutines outside of a scope that one of it may wait for share slices, and sources are polled "
          "between") {
    struct source final : progress_source {
        int polls = 0;
        bool poll() noexcept override {
            ++polls;
            return false;
        }
    } polled;
    /// Awaits an event of the program by an awaiter without `bind`.
    struct plain_wait {
        event::wait_operation on;
        bool await_ready() noexcept {
            on.bind({scheduler::current(), {}});
            return on.await_ready();
        }
        void await_suspend(std::coroutine_handle<> h) noexcept { on.await_suspend(h); }
        void await_resume() { on.await_resume(); }
    };
    test::virtual_time world;
    world.on.add_source(polled);
    computing work{world.time, 100us};
    constexpr int coroutines = 40;
    int polls = 0;
    world.run([](computing& by_others, source& src, int& between) -> task<> {
        event set;
        task_group others;
        {
            task_group scope;
            scope.spawn([&]() -> task<> { co_await plain_wait{set.wait()}; });
            co_await yield();
            co_await yield();
            for (int n = 0; n < coroutines; ++n) {
                others.spawn([&, n]() -> task<> {
                    by_others();
                    if (n == coroutines - 1) set.set();
                    co_return;
                });
            }
            between = src.polls;
            // The end of `scope` waits in this coroutine, on top of which only that scope's are resumed, or those it may wait for.
        }
        between = src.polls - between;
        co_await others.join();
    }(work, polled, polls));
    CHECK(work.times == coroutines);
    CHECK(polls >= coroutines - 1);
}

TEST_CASE("coroutines that are ready together share a slice of time, and the rest go on in the next turn") {
    struct source final : progress_source {
        int polls = 0;
        bool poll() noexcept override {
            ++polls;
            return false;
        }
    } polled;
    constexpr int coroutines = 40;
    scheduler on;
    on.add_source(polled);
    std::vector<int> order;
    int polls = 0;
    on.run([](source& src, std::vector<int>& list, int& count) -> task<> {
        task_group group;
        co_await yield();
        for (int number = 0; number < coroutines; ++number) {
            group.spawn([&list, number]() -> task<> {
                compute_for(100us);
                list.push_back(number);
                co_return;
            });
        }
        const int before = src.polls;
        co_await group.join();
        count = src.polls - before;
    }(polled, order, polls));
    CHECK(polls >= coroutines);
    REQUIRE(order.size() == coroutines);
    for (int number = 0; number < coroutines; ++number)
        CHECK(order[static_cast<std::size_t>(number)] == number);
}

TEST_CASE("a source that is polled finds the time of microseconds ago without reading the clock") {
    struct source final : progress_source {
        scheduler* of = nullptr;
        int polls = 0;
        duration oldest{};
        bool poll() noexcept override {
            ++polls;
            const time_point seen = of->coarse_now();
            const duration age = of->now() - seen;
            CHECK(age >= 0ns);
            if (age > oldest) oldest = age;
            return false;
        }
    };
    for (const bool busy : {true, false}) {
        CAPTURE(busy);
        duration best = 1h;
        for (int attempt = 0; attempt < 20; ++attempt) {
            source polled;
            scheduler on{idle::spin{}};
            polled.of = &on;
            on.run([](source& src, bool yields, scheduler& s) -> task<> {
                co_await yield();
                s.add_source(src);
                if (yields) {
                    for (int n = 0; n < 100; ++n) {
                        compute_for(20us);
                        co_await yield();
                    }
                } else {
                    while (src.polls < 20) co_await sleep_for(2ms);
                }
            }(polled, busy, on));
            REQUIRE(polled.polls >= 20);
            if (polled.oldest < best) best = polled.oldest;
        }
        CHECK(best < 1ms);
    }
}

TEST_CASE("a scheduler that ends calls what was posted, and what that posts") {
    int calls = 0;
    {
        scheduler on;
        on.post([&] {
            ++calls;
            on.post([&] {
                ++calls;
                on.post([&] { ++calls; });
            });
        });
    }
    CHECK(calls == 3);
}

}  // namespace test_coro_scheduler
