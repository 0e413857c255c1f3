#include <rdmacoro/coro/thread_channel.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace test_coro_thread_channel {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

struct tagged {
    int thread;
    int number;
};

task<> receive_all(thread_channel<tagged>& from, std::vector<tagged>& into) {
    for (;;) {
        const auto got = co_await as_result(from.receive());
        if (!got) {
            CHECK(got.error() == errc::closed);
            co_return;
        }
        into.push_back(*got);
    }
}

/// `threads` of them push `each` values; checks that all arrive, those of each thread in order.
void exchange(scheduler& on, std::size_t capacity, int threads, int each) {
    thread_channel<tagged> values(on, capacity);
    std::atomic<int> left{threads};
    std::vector<std::thread> pushers;
    for (int t = 0; t < threads; ++t) {
        pushers.emplace_back([&, t] {
            for (int i = 0; i < each; ++i) {
                if (!values.push({t, i})) std::abort();
            }
            if (left.fetch_sub(1) == 1) values.close();
        });
    }
    std::vector<tagged> got;
    on.run(receive_all(values, got));
    for (auto& pusher : pushers) pusher.join();
    REQUIRE(got.size() == static_cast<std::size_t>(threads * each));
    std::vector<int> next(static_cast<std::size_t>(threads), 0);
    for (const tagged& value : got) REQUIRE(value.number == next[static_cast<std::size_t>(value.thread)]++);
}

}  // namespace

TEST_CASE("values of many threads all arrive, those of each thread in order") {
    scheduler on;
    exchange(on, 64, 4, 2000);
}

TEST_CASE("pushing threads wait for room and are woken") {
    scheduler on;
    exchange(on, 2, 3, 2000);
}

TEST_CASE("the receiver is woken from its sleep, every time") {
    scheduler on(idle::adaptive(0ns, 0ns));
    constexpr int rounds = 20000;
    thread_channel<int> values(on, 4);
    std::atomic<int> answered{0};
    std::thread pusher([&] {
        for (int i = 1; i <= rounds; ++i) {
            for (int spin = 0; spin < i % 131; ++spin) answered.load(std::memory_order_relaxed);
            if (!values.try_push(int{i})) std::abort();
            while (answered.load(std::memory_order_acquire) != i) std::this_thread::yield();
        }
    });
    on.run([](thread_channel<int>& from, std::atomic<int>& answers) -> task<> {
        for (int i = 1; i <= rounds; ++i) {
            const int got = co_await from.receive();
            answers.store(got, std::memory_order_release);
        }
    }(values, answered));
    pusher.join();
    CHECK(answered.load() == rounds);
    CHECK(on.parks() > 0);
}

TEST_CASE("try_push refuses when it is full or closed and keeps the value") {
    scheduler on;
    thread_channel<std::unique_ptr<int>> boxes(on, 2);
    CHECK(boxes.capacity() == 2);
    CHECK(boxes.try_push(std::make_unique<int>(1)));
    CHECK(boxes.try_push(std::make_unique<int>(2)));
    auto third = std::make_unique<int>(3);
    CHECK_FALSE(boxes.try_push(std::move(third)));
    CHECK(third != nullptr);
    CHECK(**boxes.try_receive() == 1);
    CHECK(boxes.try_push(std::move(third)));
    boxes.close();
    CHECK(boxes.closed());
    auto late = std::make_unique<int>(4);
    CHECK_FALSE(boxes.try_push(std::move(late)));
    CHECK(late != nullptr);
    CHECK_FALSE(boxes.push(std::make_unique<int>(5)));
    on.run([](thread_channel<std::unique_ptr<int>>& from) -> task<> {
        auto a = co_await from.receive();
        auto b = co_await from.receive();
        CHECK(*a == 2);
        CHECK(*b == 3);
        const auto end = co_await as_result(from.receive());
        CHECK(end.error() == errc::closed);
    }(boxes));
}

TEST_CASE("values that are never received are destroyed with the channel") {
    scheduler on;
    auto shared = std::make_shared<int>(1);
    {
        thread_channel<std::shared_ptr<int>> values(on, 8);
        CHECK(values.push(shared));
        CHECK(values.push(shared));
        CHECK(shared.use_count() == 3);
    }
    CHECK(shared.use_count() == 1);
}

TEST_CASE("pushing to a full channel on the receiver's own thread is refused instead of waiting for itself") {
    scheduler on;
    thread_channel<int> values(on, 2);
    on.run([](thread_channel<int>& to) -> task<> {
        CHECK(to.push(1));
        CHECK(to.push(2));
        CHECK_THROWS_AS(to.push(3), error);
        co_return;
    }(values));
}

TEST_CASE("pushing to a full channel between the polls of another event loop is refused instead of waiting "
          "for itself") {
    const test::death seen = test::dies([] {  // it may wait for ever
        scheduler on;
        thread_channel<int> values(on, 2);
        auto receives = on.start([](thread_channel<int>& from) -> task<int> {
            co_await sleep_for(1ms);
            co_return co_await from.receive();
        }(values));
        on.poll();
        if (!values.push(1) || !values.push(2)) ::_exit(10);
        try {
            static_cast<void>(values.push(3));
            ::_exit(11);
        } catch (const error& refused) {
            if (refused.code() != errc::invalid_argument) ::_exit(12);
        }
        while (!receives.done()) on.poll();
        if (receives.get() != 1 || !values.push(3)) ::_exit(13);  // there is room
    });
    CHECK(WIFEXITED(seen.status));
    CHECK(WEXITSTATUS(seen.status) == 0);
}

TEST_CASE("a thread that does not run the receiver waits for room between its polls") {
    scheduler on;
    thread_channel<int> values(on, 2);
    REQUIRE(values.try_push(1));
    REQUIRE(values.try_push(2));
    on.poll();
    std::atomic<bool> pushed{false};
    std::thread pusher([&] { pushed = values.push(3); });
    int last = 0;
    const time_point limit = std::chrono::steady_clock::now() + 30s;
    for (int got = 0; got < 3;) {
        if (std::chrono::steady_clock::now() > limit) std::abort();  // the pusher could not be joined
        on.poll();
        if (const auto value = values.try_receive()) {
            last = *value;
            ++got;
        }
    }
    pusher.join();
    CHECK(pushed.load());
    CHECK(last == 3);
}

TEST_CASE("closing wakes the receiver and the threads that wait for room") {
    for (int round = 0; round < 200; ++round) {
        scheduler on(idle::adaptive(0ns, 0ns));
        thread_channel<int> empty(on, 2);
        thread_channel<int> full(on, 2);
        REQUIRE(full.try_push(1));
        REQUIRE(full.try_push(2));
        std::atomic<bool> refused{false};
        std::thread pusher([&] { refused = !full.push(3); });
        std::thread closer([&] {
            empty.close();
            full.close();
        });
        const auto ended = on.run([](thread_channel<int>& from) -> task<result<int>> {
            co_return co_await as_result(from.receive());
        }(empty));
        CHECK(ended.error() == errc::closed);
        pusher.join();
        closer.join();
        CHECK(refused.load());
    }
}

TEST_CASE("a canceled receive loses no value, and the next one is woken") {
    scheduler on(idle::adaptive(0ns, 0ns));
    int canceled = 0;
    for (int round = 0; round < 500; ++round) {
        thread_channel<int> values(on, 2);
        std::stop_source stop;
        std::thread other([&] {
            if (round % 2 == 0) stop.request_stop();
            if (!values.try_push(5)) std::abort();
            stop.request_stop();
        });
        const int got = on.run([](thread_channel<int>& from, std::stop_token token, int& count) -> task<int> {
            const auto first = co_await as_result(with_stop(from.receive(), token));
            if (first) co_return *first;
            CHECK(first.error() == errc::canceled);
            ++count;
            co_return co_await from.receive();
        }(values, stop.get_token(), canceled));
        other.join();
        REQUIRE(got == 5);
    }
    CHECK(canceled > 0);
}

TEST_CASE("pushing and receiving allocate nothing") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    scheduler on;
    thread_channel<int> values(on, 4);
    const std::size_t counted = on.run([](thread_channel<int>& through) -> task<std::size_t> {
        const std::size_t before = test::allocations();
        for (int i = 0; i < 100; ++i) {
            auto pending = start(through.receive());
            if (!through.try_push(int{i})) co_return 1000;
            const int got = co_await pending;
            if (got != i) co_return 2000;
        }
        co_return test::allocations() - before;
    }(values));
    CHECK(counted == 0);
}

TEST_CASE("a second receiver at a time ends the process") {
    const test::death seen = test::dies([] {
        scheduler on;
        thread_channel<int> values(on, 2);
        on.run([](thread_channel<int>& from) -> task<> {
            auto first = start(from.receive());
            auto second = start(from.receive());
            co_await first;
            co_await second;
        }(values));
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("one receiver"));
}

TEST_CASE("a channel of more values than there is memory for is not made") {
    scheduler on;
    CHECK_THROWS_AS(thread_channel<int>(on, static_cast<std::size_t>(-1)), std::bad_alloc);
    CHECK_THROWS_AS(thread_channel<int>(on, static_cast<std::size_t>(-1) / 2 + 1), std::bad_alloc);
}

TEST_CASE("values pushed by threads may be such as are never assigned") {
    struct job {
        const int id;
        explicit job(int number) noexcept : id(number) {}
        job(job&&) noexcept = default;
    };
    scheduler on;
    thread_channel<job> jobs(on, 2);
    CHECK(jobs.push(job(1)));
    CHECK(jobs.push(job(2)));
    on.run([](thread_channel<job>& from) -> task<> {
        const job first = co_await from.receive();
        CHECK(first.id == 1);
    }(jobs));
    const auto second = jobs.try_receive();
    REQUIRE(second);
    CHECK(second->id == 2);
    CHECK_FALSE(jobs.try_receive());
}

}  // namespace test_coro_thread_channel
