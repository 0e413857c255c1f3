#include <rdmacoro/service/detail/helper_call.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>

namespace test_service_detail_helper_call {

using namespace rdmacoro;
using namespace std::chrono_literals;
using detail::helper_call;
using detail::patience;

namespace {

time_point soon() { return detail::monotonic_now() + 10s; }

template <class F>
void run(F body) {
    scheduler on{test::impatient{}};
    on.run([](F inner) -> task<> { co_await inner(); }(std::move(body)));
}

}  // namespace

TEST_CASE("a function that blocks runs on another thread, and the scheduler goes on meanwhile") {
    run([]() -> task<> {
        std::atomic<bool> release{false};
        std::atomic<bool> elsewhere{false};
        const std::thread::id here = std::this_thread::get_id();
        std::function<void(const patience&)> work = [&](const patience&) {
            elsewhere = std::this_thread::get_id() != here;
            release.wait(false);
        };
        helper_call call(std::move(work), soon(), false);
        auto pending = start(std::move(call));
        for (int n = 0; n < 100; ++n) co_await yield();
        test::check_stage("a call to the launcher", "it has not answered", next_actor::outside);
        release = true;
        release.notify_all();
        co_await pending;
        CHECK(elsewhere);
    });
}

TEST_CASE("what the function throws comes out where it is awaited") {
    run([]() -> task<> {
        std::function<void(const patience&)> work = [](const patience&) {
            throw std::runtime_error("of the function");
        };
        helper_call call(std::move(work), soon(), false);
        std::string text;
        try {
            co_await call;
        } catch (const std::runtime_error& failed) {
            text = failed.what();
        }
        CHECK(text == "of the function");
    });
}

TEST_CASE("a function that looks at its patience is waited for when it is canceled") {
    run([]() -> task<> {
        std::atomic<bool> ended{false};
        std::function<void(const patience&)> work = [&](const patience& limit) {
            try {
                limit.sleep(10s);
            } catch (const error&) {
                ended = true;
                throw;
            }
        };
        helper_call call(std::move(work), soon(), false);
        local_stop_source stop;
        auto pending = start(as_result(with_stop(std::move(call), stop.get_token())));
        co_await yield();
        stop.request_stop();
        const result<void> got = co_await pending;
        CHECK(got.error() == errc::canceled);
        CHECK(ended);
    });
}

TEST_CASE("a function that hangs is left to its thread when it is canceled, with all that it uses") {
    const auto release = std::make_shared<std::atomic<bool>>(false);
    const std::weak_ptr<std::atomic<bool>> alive = release;
    auto held = release;
    run([&]() -> task<> {
        std::function<void(const patience&)> work = [held = std::move(held)](const patience&) {
            held->wait(false);
        };
        helper_call call(std::move(work), soon(), true);
        const result<void> got = co_await as_result(timeout(std::move(call), 1ms));
        CHECK(got.error() == errc::timed_out);
    });
    // The scheduler has gone.
    *release = true;
    release->notify_all();
    while (alive.use_count() != 1) std::this_thread::yield();
    CHECK(alive.use_count() == 1);  // the thread has ended, and with it what it held
}

TEST_CASE("a call that begins with a stopped token does nothing") {
    run([]() -> task<> {
        bool called = false;
        std::function<void(const patience&)> work = [&](const patience&) { called = true; };
        helper_call call(std::move(work), soon(), false);
        local_stop_source stop;
        stop.request_stop();
        const result<void> got = co_await as_result(with_stop(std::move(call), stop.get_token()));
        CHECK(got.error() == errc::canceled);
        CHECK_FALSE(called);
    });
}

TEST_CASE("signals are not for the thread of a call") {
    run([]() -> task<> {
        sigset_t of_thread;
        std::function<void(const patience&)> work = [&](const patience&) {
            ::pthread_sigmask(SIG_SETMASK, nullptr, &of_thread);
        };
        helper_call call(std::move(work), soon(), false);
        co_await call;
        CHECK(sigismember(&of_thread, SIGTERM) == 1);
        sigset_t here;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &here);
        CHECK(sigismember(&here, SIGTERM) == 0);
    });
}

}  // namespace test_service_detail_helper_call
