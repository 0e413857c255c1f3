#include <rdmacoro/service/detail/remote_task.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

namespace test_service_detail_remote_task {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace std::chrono_literals;

namespace {

/// A scheduler with a port on a thread of its own.
struct elsewhere {
    scheduler on;
    task_port port{on};
    std::stop_source over;
    std::thread runs{[this] {
        static_cast<void>(on.run(until_over(), over.get_token()));
        port.close();
        port.join();
    }};
    static task<bool> until_over() { co_return !co_await as_result(sleep_for(1h)); }
    void end() {
        over.request_stop();
        if (runs.joinable()) runs.join();
    }
    ~elsewhere() { end(); }
};

template <class R, class Make>
auto remote(elsewhere& at, Make make) {
    return remote_task<R, Make>(at.port, make_error_code(errc::closed), std::move(make));
}

/// Soon, while the port is open.
bool none_runs(const elsewhere& at) {
    const auto until = std::chrono::steady_clock::now() + 5s;
    while (at.port.running() != 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return at.port.running() == 0;
}

task<int> add_after(int turns, int a, int b) {
    for (int n = 0; n < turns; ++n) co_await yield();
    co_return a + b;
}

task<int> add(int a, int b) {
    co_await yield();
    co_return a + b;
}

}  // namespace

TEST_CASE("a task runs on another thread and ends here") {
    elsewhere there;
    scheduler on;
    const int sum = on.run([](elsewhere& at) -> task<int> {
        int all = 0;
        for (int n = 0; n < 100; ++n) {
            auto one = remote<int>(at, [n] { return add(n, 1); });
            all += co_await one;
        }
        auto thread = remote<std::thread::id>(
            at, []() -> task<std::thread::id> { co_return std::this_thread::get_id(); });
        const auto ran_on = co_await thread;
        CHECK(ran_on == at.runs.get_id());
        auto failing = remote<void>(at, []() -> task<> {
            throw 7;
            co_return;
        });
        int thrown = 0;
        try {
            co_await failing;
        } catch (int what) {
            thrown = what;
        }
        CHECK(thrown == 7);
        co_return all;
    }(there));
    CHECK(sum == 5050);
}

TEST_CASE("a task that is canceled as it ends, ends once") {
    elsewhere there;
    scheduler on;
    on.run([](elsewhere& at) -> task<> {
        int values = 0;
        int timeouts = 0;
        int turns = 1;  // comes to as many as take the time of a cancel, however fast the machine is
        for (int n = 0; n < 2000 || (n < 5000 && std::min(values, timeouts) < 200); ++n) {
            auto one = remote<int>(at, [turns] { return add_after(turns, 1, 2); });
            const auto got = co_await as_result(timeout(one, std::chrono::microseconds(n % 40)));
            if (got) {
                REQUIRE(*got == 3);
                ++values;
                turns = std::min(turns + turns / 8 + 1, 100'000);
            } else {
                REQUIRE(got.error() == errc::timed_out);
                ++timeouts;
                turns -= turns / 8;
            }
        }
        CHECK(values >= 200);
        CHECK(timeouts >= 200);
    }(there));
    CHECK(none_runs(there));
}

TEST_CASE("a task that nothing else ends is ended by its cancel") {
    elsewhere there;
    scheduler on;
    on.run([](elsewhere& at) -> task<> {
        auto one = remote<void>(at, []() -> task<> { co_await sleep_for(10s); });
        const auto got = co_await as_result(timeout(one, 1ms));
        CHECK(got.error() == errc::timed_out);
    }(there));
    CHECK(none_runs(there));
}

TEST_CASE("a port that ends while tasks begin, run and are canceled answers all") {
    int timeouts = 0;
    int closed = 0;
    for (int round = 0; round < 30; ++round) {
        auto there = std::make_unique<elsewhere>();
        scheduler on;
        on.run([](elsewhere& at, int after, int& timed_out, int& ended_by_port) -> task<> {
            task_group some;
            int answered = 0;
            for (int n = 0; n < 40; ++n) {
                some.spawn([&, n]() -> task<> {
                    auto one = remote<void>(at, []() -> task<> { co_await sleep_for(1h); });
                    const auto got = co_await as_result(timeout(one, std::chrono::microseconds(n * 20)));
                    if (got.error() == errc::closed || got.error() == errc::timed_out ||
                        got.error() == errc::canceled)
                        ++answered;
                    timed_out += got.error() == errc::timed_out;
                    ended_by_port += got.error() == errc::closed;
                });
            }
            co_await sleep_for(std::chrono::microseconds(after * 25));
            at.end();
            co_await some.join();
            CHECK(answered == 40);
            auto late = remote<int>(at, [] { return add(1, 2); });
            const auto refused = co_await as_result(late);
            CHECK(refused.error() == errc::closed);
        }(*there, round, timeouts, closed));
    }
    CHECK(timeouts > 100);
    CHECK(closed > 100);
}

TEST_CASE("a thread without a scheduler waits for a task, or destroys it") {
    elsewhere there;
    std::atomic<bool> began{false};
    {
        auto one = remote<void>(there, [&began]() -> task<> {
            began = true;
            co_await sleep_for(1h);
        });
        one.begin();
        CHECK(!one.wait_until(monotonic_now() + 1ms));
        while (!began) std::this_thread::yield();
    }
    while (there.port.running() != 0) std::this_thread::yield();
    auto sum = remote<int>(there, [] { return add(1, 2); });
    sum.begin();
    CHECK(sum.wait_until(time_point::max()));
    CHECK(sum.await_resume() == 3);
}

}  // namespace test_service_detail_remote_task
