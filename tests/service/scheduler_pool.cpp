#include <rdmacoro/service/scheduler_pool.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/nodes.hpp"
#include "support/shop.hpp"

#include <rdmacoro/service/calls.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace test_service_scheduler_pool {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct on_pool {
    static constexpr method<"slow.thread", std::string(std::string)> thread{};
    static constexpr method<"slow.here", std::string()> here{};
    static constexpr method<"slow.sum", double(std::vector<double>)> sum{};
    static constexpr method<"slow.fail", void(int)> fail{};
    static constexpr method<"slow.word", std::string()> word{};
    static constexpr method<"slow.wait", void()> wait{};
    static constexpr method<"slow.block", void()> block{};
    static constexpr method<"slow.note", one_way(int)> note{};
    static constexpr method<"slow.limit", bool()> limit{};
    static constexpr method<"slow.taken", std::uint64_t(std::uint64_t)> taken{};
};

struct killer {
    static constexpr method<"kill.pool", void()> pool{};
};

std::string this_thread_text() {
    return std::to_string(std::hash<std::thread::id>()(std::this_thread::get_id()));
}

/// The observations of the handlers on the pool.
struct seen {
    std::atomic<int> waiting{0};
    std::atomic<int> stopped{0};
    std::atomic<int> noted{0};
    std::atomic<bool> blocking{false};
    std::atomic<bool> released{false};

    void release() noexcept {
        released = true;
        released.notify_all();
    }
};
/// At its end nothing blocks a thread any more.
struct released_at_end {
    explicit released_at_end(seen& of) noexcept : by(of) {}
    released_at_end(const released_at_end&) = delete;
    released_at_end& operator=(const released_at_end&) = delete;
    ~released_at_end() { by.release(); }
    seen& by;
};

void offer(service& offered, scheduler_pool& pool, seen& by) {
    offered.on(on_pool::thread, pool, [](pool_context&, std::string text) -> task<std::string> {
        co_await yield();
        co_return text + this_thread_text();
    });
    offered.on(on_pool::here, [](call_context&) -> task<std::string> { co_return this_thread_text(); });
    offered.on(on_pool::sum, pool, [](pool_context&, std::vector<double> all) -> task<double> {
        co_return std::accumulate(all.begin(), all.end(), 0.0);
    });
    offered.on(on_pool::fail, pool, [](pool_context&, int how) -> task<> {
        co_await yield();
        if (how == 0) throw error(errc::access_denied, "not you");
        if (how == 2) throw std::system_error(std::error_code(), "no code");
        throw std::out_of_range("no such thing");
    });
    offered.on(on_pool::word, pool, [](pool_context&) -> task<std::string> {
        co_await yield();
        throw std::system_error(std::error_code(), "no code");
    });
    offered.on(on_pool::wait, pool, [&by](pool_context& of) -> task<> {
        ++by.waiting;
        const auto slept = co_await as_result(sleep_for(1h));
        --by.waiting;
        if (of.canceled() && slept.error() == errc::canceled) ++by.stopped;
        slept.value();
    });
    offered.on(on_pool::block, pool, [&by](pool_context&) -> task<> {
        by.blocking = true;
        by.released.wait(false);
        co_return;
    });
    offered.on(on_pool::note, pool, [&by](pool_context&, int n) -> task<> {
        by.noted += n;
        co_return;
    });
    // What its thread has taken from the heap.
    offered.on(on_pool::taken, pool,
               [](pool_context&, std::uint64_t) -> task<std::uint64_t> { co_return allocations(); });
    offered.on(on_pool::limit, pool, [](pool_context& of) -> task<bool> {
        const auto left = of.remaining();
        co_return left && *left > duration::zero() && *left <= 10s && of.bytes() >= 16;
    });
}

/// `body(client, pool, seen)`; the pool may be ended.
template <class T, class Body>
void run_pool(Body body) {
    scheduler on;
    on.run([](Body run) -> task<> {
        auto listening = co_await listen<T>(fresh_url<T>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<T>(listening.address());
        auto b = co_await accepting;
        seen by;
        std::optional<scheduler_pool> pool(2);
        service offered;
        offer(offered, *pool, by);
        {
            calls<T> server(b, offered);
            calls<T> client(a);
            co_await timeout(run(client, pool, by), 60s);
        }
        CHECK(by.waiting == 0);
        a.abort();
    }(std::move(body)));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("handlers run on a pool's threads, others stay", "", node_transports) {
    run_pool<TestType>([](auto& client, auto& pool, seen& by) -> task<> {
        const std::string mine = this_thread_text();
        const std::string here = co_await client.call(on_pool::here);
        CHECK(here == mine);
        std::set<std::string> others;
        task_group some;
        for (int n = 0; n < 64; ++n) {
            some.spawn([&]() -> task<> {
                std::string got = co_await client.call(on_pool::thread, "");
                others.insert(std::move(got));
            });
        }
        co_await some.join();
        CHECK(others.size() == 2);
        CHECK(!others.contains(mine));
        const std::vector<double> many(100000, 0.5);
        const double sum = co_await client.call(on_pool::sum, many);
        CHECK(sum == 50000);
        for (int n = 0; n < 10; ++n) co_await client.cast(on_pool::note, n);
        while (by.noted != 45) co_await yield();
        const bool in_time = co_await timeout(client.call(on_pool::limit), 10s);
        CHECK(in_time);
        CHECK(pool->size() == 2);
        while (pool->running() != 0) co_await yield();
    });
}

TEMPLATE_LIST_TEST_CASE(
    "handlers that a thread has not begun count as its own: few are given to one that is blocked", "",
    node_transports) {
    run_pool<TestType>([](auto& client, auto&, seen& by) -> task<> {
        std::atomic<int> answered{0};
        const released_at_end in_any_case(by);
        task_group some;
        some.spawn([&]() -> task<> { co_await client.call(on_pool::block); });
        while (!by.blocking) co_await yield();
        // Both of the other thread, or one of them behind what blocks.
        task_group waiting;
        for (int n = 0; n < 3; ++n) waiting.spawn([&]() -> task<> { co_await client.call(on_pool::wait); });
        while (by.waiting != 2) co_await yield();
        for (int n = 0; n < 10; ++n) {
            some.spawn([&]() -> task<> {
                static_cast<void>(co_await client.call(on_pool::thread, "quick"));
                ++answered;
            });
            // It may be behind what blocks.
            const int before = answered;
            const time_point until = detail::monotonic_now() + 300ms;
            while (answered == before && detail::monotonic_now() < until) co_await yield();
        }
        CHECK(answered >= 8);
        by.release();
        co_await timeout(some.join(), 20s);
        CHECK(answered == 10);
        waiting.request_stop();
        co_await timeout(waiting.join(), 20s);
    });
}

TEMPLATE_LIST_TEST_CASE("calls of values of fixed length to a pool allocate nothing, on no thread", "",
                        node_transports) {
    if (!counts_allocations) {
        SUCCEED("allocations are not counted here");
        return;
    }
    scheduler on;
    on.run([]() -> task<> {
        auto listening = co_await listen<TestType>(fresh_url<TestType>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<TestType>(listening.address());
        auto b = co_await accepting;
        seen by;
        scheduler_pool pool(1);
        service offered;
        offer(offered, pool, by);
        {
            calls<TestType> server(b, offered);
            calls<TestType> client(a);
            // The frames of some that run at once: one at a time, the next may begin before the frame of the last has been given back.
            task_group some;
            for (unsigned n = 0; n < 16; ++n)
                some.spawn([&client, n]() -> task<> { co_await client.call(on_pool::taken, n); });
            co_await some.join();
            std::uint64_t there = 0;
            std::size_t here = 1;
            for (int round = 0; round < 2; ++round) {
                const std::size_t before = allocations();
                const std::uint64_t first = co_await client.call(on_pool::taken, 0U);
                std::uint64_t last = 0;
                for (unsigned n = 0; n < 500; ++n)
                    last = co_await timeout(client.call(on_pool::taken, n), 20s);
                here = allocations() - before;
                there = last - first;
            }
            CHECK(here == 0);
            CHECK(there == 0);
        }
        a.abort();
    }());
}

TEMPLATE_LIST_TEST_CASE("what a handler on a pool throws reaches the caller", "", node_transports) {
    run_pool<TestType>([](auto& client, auto&, seen&) -> task<> {
        for (int n = 0; n < 100; ++n) {
            const auto denied = co_await as_result(client.call(on_pool::fail, 0));
            if (denied.error() != errc::access_denied) FAIL("another error");
        }
        std::string text;
        try {
            co_await client.call(on_pool::fail, 1);
        } catch (const error& failed) {
            CHECK(failed.code() == call_errc::handler_failed);
            text = failed.what();
        }
        CHECK_THAT(text, Catch::Contains("no such thing"));
        // A code that means no error is none, and no value.
        for (int n = 0; n < 10; ++n) {
            const auto nothing = co_await as_result(client.call(on_pool::fail, 2));
            CHECK(nothing.error() == call_errc::handler_failed);
            const auto word = co_await as_result(client.call(on_pool::word));
            CHECK(word.error() == call_errc::handler_failed);
        }
    });
}

TEMPLATE_LIST_TEST_CASE("cancellation and deadline reach a handler on its own thread", "", node_transports) {
    run_pool<TestType>([](auto& client, auto&, seen& by) -> task<> {
        const auto late = co_await as_result(timeout(client.call(on_pool::wait), 20ms));
        CHECK(late.error() == errc::timed_out);
        while (by.waiting != 0) co_await yield();
        std::vector<std::unique_ptr<local_stop_source>> stops;
        task_group some;
        int canceled = 0;
        for (int n = 0; n < 100; ++n) {
            stops.push_back(std::make_unique<local_stop_source>());
            some.spawn([&, &stop = *stops.back()]() -> task<> {
                const auto ended =
                    co_await as_result(with_stop(client.call(on_pool::wait), stop.get_token()));
                if (ended.error() == errc::canceled) ++canceled;
            });
        }
        while (by.waiting != 100) co_await yield();
        for (const auto& one : stops) one->request_stop();
        co_await some.join();
        CHECK(canceled == 100);
        while (by.waiting != 0) co_await yield();
        CHECK(by.stopped >= 100);
    });
}

TEMPLATE_LIST_TEST_CASE("calls that are canceled at any moment leave nothing on a pool", "",
                        node_transports) {
    run_pool<TestType>([](auto& client, auto& pool, seen&) -> task<> {
        task_group some;
        std::size_t canceled = 0;
        std::size_t others = 0;
        for (int worker = 0; worker < 8; ++worker) {
            some.spawn([&, worker]() -> task<> {
                for (int n = 0; n < 100; ++n) {
                    const auto got = co_await as_result(timeout(
                        client.call(on_pool::thread, "x"), std::chrono::microseconds((n * 7 + worker) % 90)));
                    if (got) continue;
                    ++(got.error() == errc::timed_out ? canceled : others);
                }
            });
        }
        co_await some.join();
        CHECK(canceled > 20);
        CHECK(others == 0);
        const std::string after = co_await client.call(on_pool::thread, "x");
        CHECK(after.size() > 1);
        while (pool->running() != 0) co_await yield();
    });
}

TEMPLATE_LIST_TEST_CASE("a pool that ends while handlers run asks them to stop, and joins them", "",
                        node_transports) {
    run_pool<TestType>([](auto& client, auto& pool, seen& by) -> task<> {
        task_group some;
        int stopped = 0;
        for (int n = 0; n < 50; ++n) {
            some.spawn([&]() -> task<> {
                const auto ended = co_await as_result(client.call(on_pool::wait));
                if (ended.error() == call_errc::stopped) ++stopped;
            });
        }
        while (by.waiting != 50) co_await yield();
        pool.reset();
        CHECK(by.waiting == 0);
        CHECK(by.stopped == 50);
        co_await some.join();
        CHECK(stopped == 50);
        // Later calls are refused; methods without a pool are not.
        const auto refused = co_await as_result(client.call(on_pool::thread, ""));
        CHECK(refused.error() == call_errc::stopped);
        const std::string here = co_await client.call(on_pool::here);
        CHECK(here == this_thread_text());
    });
}

TEST_CASE("the end of the connection stops the handlers on a pool") {
    scheduler on;
    seen by;
    on.run([](seen& of) -> task<> {
        auto listening = co_await listen<shm>(fresh_url<shm>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<shm>(listening.address());
        auto b = co_await accepting;
        scheduler_pool pool(1);
        service offered;
        offer(offered, pool, of);
        calls<shm> server(b, offered);
        calls<shm> client(a);
        auto waiting = start(client.call(on_pool::wait));
        while (of.waiting != 1) co_await yield();
        a.abort();
        const auto ended = co_await as_result(waiting);
        CHECK(!ended);
        while (of.waiting != 0) co_await yield();
    }(by));
    CHECK(by.stopped == 1);
}

TEST_CASE("a pool has a thread at least, and is not destroyed by its own handlers") {
    CHECK_THROWS_AS(scheduler_pool(0), error);
    const death how = dies([] {
        run_pool<shm>([](auto& client, auto& pool, seen&) -> task<> {
            static std::optional<scheduler_pool>* its = nullptr;
            its = &pool;
            service other;
            other.on(killer::pool, *pool, [](pool_context&) -> task<> {
                its->reset();
                co_return;
            });
            static_cast<void>(co_await as_result(client.call(on_pool::here)));
            auto listening = co_await listen<shm>(fresh_url<shm>());
            auto accepting = start(listening.accept());
            auto a = co_await connect<shm>(listening.address());
            auto b = co_await accepting;
            calls<shm> server(b, other);
            calls<shm> asking(a);
            co_await asking.call(killer::pool);
        });
    });
    CHECK(how.aborted);
    CHECK_THAT(how.said, Catch::Contains("a scheduler_pool was destroyed by a handler that runs on it"));
}

TEST_CASE("a pool that there is no memory for is not made, whichever part of it is missing") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    std::size_t refused = 0;
    for (std::size_t n = 1;; ++n) {
        fail_allocation(n);
        try {
            scheduler_pool made(3);
            if (allocation_is_to_fail()) break;  // it took fewer
        } catch (const std::bad_alloc&) {
            ++refused;
        }
        REQUIRE_FALSE(allocation_is_to_fail());
    }
    fail_allocation(0);
    CHECK(refused >= 6);
}

}  // namespace test_service_scheduler_pool
