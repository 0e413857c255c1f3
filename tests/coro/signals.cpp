#include <rdmacoro/coro/signals.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <atomic>
#include <memory>
#include <thread>

#include <sys/time.h>

namespace test_coro_signals {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

bool blocks(int number) {
    sigset_t now;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return ::sigismember(&now, number) == 1;
}

void send_self(int number) { ::kill(::getpid(), number); }

task<int> serve_until_stopped(int& finished) {
    const auto ended = co_await as_result(sleep_for(1h));
    if (ended.error() != errc::canceled) co_return -100;  // checks are for the test's own thread
    co_await without_stop(sleep_for(1ms), 10s);
    co_return ++finished;
}

}  // namespace

TEST_CASE("a signal that came before, and one that comes while a coroutine waits, are both received") {
    scheduler on{test::impatient{}};
    signals quit(on, {SIGUSR1, SIGUSR2});
    on.run([](signals& from) -> task<> {
        send_self(SIGUSR2);
        const int before = co_await from.next();
        CHECK(before == SIGUSR2);
        auto pending = start(from.next());
        co_await yield();
        CHECK_FALSE(pending.done());
        send_self(SIGUSR1);
        const int meanwhile = co_await pending;
        CHECK(meanwhile == SIGUSR1);
        CHECK(from.token().stop_requested());
    }(quit));
}

TEST_CASE("each signal is for one of those that wait, and none is lost when a wait is canceled") {
    scheduler on{test::impatient{}};
    signals quit(on, {SIGUSR1, SIGUSR2});
    on.run([](signals& from) -> task<> {
        auto cut = co_await as_result(timeout(from.next(), 1ms));
        CHECK(cut.error() == errc::timed_out);
        auto first = start(from.next());
        auto second = start(from.next());
        send_self(SIGUSR1);
        send_self(SIGUSR2);
        const int one = co_await first;
        const int other = co_await second;
        CHECK(one == SIGUSR1);
        CHECK(other == SIGUSR2);
        auto none = co_await as_result(timeout(from.next(), 1ms));
        CHECK(none.error() == errc::timed_out);
        // Without a coroutine that waits it is kept.
        send_self(SIGUSR1);
        co_await sleep_for(3ms);
        const int kept = co_await from.next();
        CHECK(kept == SIGUSR1);
    }(quit));
}

TEST_CASE("a program that is stopped by a signal finishes what it exempts from the stop") {
    scheduler on{test::impatient{}};
    signals quit(on, {SIGTERM});
    int finished = 0;
    send_self(SIGTERM);
    CHECK(on.run(serve_until_stopped(finished), quit.token()) == 1);
}

TEST_CASE("the signal that stops a token is no second one for what the stopped program still does") {
    scheduler on{test::impatient{}};
    signals quit(on, {SIGTERM});
    const bool comes_before_the_token = GENERATE(false, true);
    if (comes_before_the_token) {
        send_self(SIGTERM);
        on.run([]() -> task<> { co_await sleep_for(3ms); }());
    }
    const std::size_t ended = on.run(
        [](signals& from, bool has_come) -> task<std::size_t> {
            if (!has_come) send_self(SIGTERM);
            const auto serving = co_await as_result(sleep_for(10s));
            if (serving.error() != errc::canceled) co_return 100;
            const auto first = co_await without_stop(when_any(sleep_for(3ms), from.next()));
            if (first.index != 0) co_return 200;
            send_self(SIGTERM);
            const auto second = co_await without_stop(when_any(sleep_for(10s), from.next()));
            co_return second.index;
        }(quit, comes_before_the_token),
        quit.token());
    CHECK(ended == 1);
}

TEST_CASE("a coroutine that waits for a signal gets the one that stops the token") {
    scheduler on{test::impatient{}};
    signals quit(on, {SIGTERM});
    const std::stop_token stopped = quit.token();
    on.run([](signals& from) -> task<> {
        auto pending = start(from.next());
        co_await yield();
        send_self(SIGTERM);
        const int came = co_await pending;
        CHECK(came == SIGTERM);
        const auto none = co_await as_result(timeout(from.next(), 1ms));
        CHECK(none.error() == errc::timed_out);
    }(quit));
    CHECK(stopped.stop_requested());
}

TEST_CASE("a signal wakes a parked scheduler") {
    scheduler on{idle::adaptive(0ms, 0ms)};
    signals alarms(on, {SIGALRM});
    itimerval soon{};
    soon.it_value.tv_usec = 30'000;
    ::setitimer(ITIMER_REAL, &soon, nullptr);
    const int number =
        on.run([](signals& from) -> task<int> { co_return co_await timeout(from.next(), 20s); }(alarms));
    CHECK(number == SIGALRM);
    CHECK(on.parks() > 0);
    CHECK(on.parks() < 1000);  // it sleeps until then, and does not wake again and again
}

TEST_CASE("of signals that queued some are read in a turn and all in the end") {
    scheduler on{test::impatient{}};
    signals quit(on, {SIGRTMIN});
    const auto queue_some = [] {  // as many as the system keeps of one user
        constexpr unsigned wanted = 500;
        unsigned queued = 0;
        while (queued < wanted && ::sigqueue(::getpid(), SIGRTMIN, {}) == 0) ++queued;
        return queued;
    };
    const unsigned first_sent = queue_some();
    REQUIRE(first_sent > 200);
    on.run([](signals& from, unsigned sent, const auto& queue_more) -> task<> {
        const int first = co_await from.next();
        CHECK(first == SIGRTMIN);
        // Those that the system still has.
        sigset_t only;
        ::sigemptyset(&only);
        ::sigaddset(&only, SIGRTMIN);
        const timespec at_once{};
        unsigned unread = 0;
        while (::sigtimedwait(&only, nullptr, &at_once) == SIGRTMIN) ++unread;
        CHECK(unread > sent / 2);
        for (unsigned taken = 1; taken < sent - unread; ++taken) static_cast<void>(co_await from.next());
        const unsigned more = queue_more();
        for (unsigned taken = 0; taken < more; ++taken) {
            const int number = co_await from.next();
            CHECK(number == SIGRTMIN);
        }
        const auto none = co_await as_result(timeout(from.next(), 1ms));
        CHECK(none.error() == errc::timed_out);
    }(quit, first_sent, queue_some));
}

TEST_CASE("one object stops the schedulers of several threads") {
    scheduler on{test::impatient{}};
    signals quit(on, {SIGUSR1});
    std::atomic<int> ended{0};
    auto work = [&] {
        scheduler own;
        int finished = 0;
        ended += own.run(serve_until_stopped(finished), quit.token());
    };
    std::thread first(work), second(work);
    send_self(SIGUSR1);
    int finished = 0;
    CHECK(on.run(serve_until_stopped(finished), quit.token()) == 1);
    first.join();
    second.join();
    CHECK(ended == 2);
}

TEST_CASE("its end unblocks what it blocked, and only that") {
    scheduler on;
    REQUIRE_FALSE(blocks(SIGUSR1));
    {
        signals outer(on, {SIGUSR1});
        CHECK(blocks(SIGUSR1));
        CHECK(::sigismember(&outer.mask_before(), SIGUSR1) == 0);
        {
            signals inner(on, {SIGUSR1, SIGUSR2});
            CHECK(blocks(SIGUSR2));
        }
        CHECK(blocks(SIGUSR1));
        CHECK_FALSE(blocks(SIGUSR2));
    }
    CHECK_FALSE(blocks(SIGUSR1));
}

TEST_CASE(
    "a signal that was never noticed keeps its effect; after one that was answered others are dropped") {
    const test::death unseen = test::dies([] {
        scheduler on;
        signals quit(on, {SIGUSR1});
        send_self(SIGUSR1);
    });
    CHECK(WIFSIGNALED(unseen.status));
    CHECK(WTERMSIG(unseen.status) == SIGUSR1);

    const test::death answered = test::dies([] {
        scheduler on;
        signals quit(on, {SIGUSR1});
        send_self(SIGUSR1);
        int finished = 0;
        on.run(serve_until_stopped(finished), quit.token());
        send_self(SIGUSR1);
    });
    CHECK(WIFEXITED(answered.status));
    CHECK(WEXITSTATUS(answered.status) == 0);
}

TEST_CASE("what is no signal that can be received is refused, and blocks nothing") {
    scheduler on;
    CHECK_THROWS_AS(signals(on, {}), error);
    CHECK_THROWS_AS(signals(on, {SIGUSR1, SIGKILL}), error);
    CHECK_THROWS_AS(signals(on, {SIGSEGV}), error);
    CHECK_THROWS_AS(signals(on, {0}), error);
    CHECK_THROWS_AS(signals(on, {65}), error);
    CHECK_THROWS_AS(signals(on, {-1}), error);
    CHECK_THROWS_AS(signals({SIGUSR1}), error);  // no scheduler runs
    CHECK_FALSE(blocks(SIGUSR1));
}

TEST_CASE("signals destroyed while a coroutine waits end the process") {
    const test::death seen = test::dies([] {
        scheduler on;
        on.run([]() -> task<> {
            auto made = std::make_unique<signals>(std::initializer_list<int>{SIGUSR1});
            auto pending = start(made->next());
            made.reset();
            co_await pending;
        }());
    });
    CHECK(seen.aborted);
    CHECK(seen.said.find("waits for one") != std::string::npos);
}

}  // namespace test_coro_signals
