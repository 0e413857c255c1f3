#include <rdmacoro/coro/describe.hpp>

#include <rdmacoro/coro/channel.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/coro/signals.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/thread_channel.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/when_all.hpp>
#include <rdmacoro/coro/when_any.hpp>
#include <rdmacoro/coro/yield.hpp>

#include "support/catch.hpp"
#include "support/thread_state.hpp"

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace test_coro_describe {

using namespace rdmacoro;
using rdmacoro::test::sleeps;
using namespace std::chrono_literals;

// A list of a temporary description does not refer to it.
static_assert(std::is_same_v<decltype(std::declval<rdmacoro::description>().operations()),
                             std::vector<rdmacoro::pending_operation>>);

namespace {

const pending_operation* find(const description& all, const std::string& what) {
    const auto found = std::find_if(all.operations().begin(), all.operations().end(),
                                    [&](const pending_operation& one) { return one.what == what; });
    return found != all.operations().end() ? &*found : nullptr;
}

template <class Awaitable>
task<> wait_for(Awaitable& what) {
    co_await what;
}

/// The output to the standard error stream while it lives.
class captured_stderr {
public:
    captured_stderr() {
        REQUIRE(::pipe(ends_) == 0);
        former_ = ::dup(STDERR_FILENO);
        REQUIRE(::dup2(ends_[1], STDERR_FILENO) >= 0);
    }
    captured_stderr(const captured_stderr&) = delete;
    captured_stderr& operator=(const captured_stderr&) = delete;
    ~captured_stderr() { restore(); }

    /// Waits until there is some; false after 20 s.
    [[nodiscard]] bool comes() const noexcept {
        pollfd some{ends_[0], POLLIN, 0};
        return ::poll(&some, 1, 20'000) > 0;
    }

    [[nodiscard]] std::string text() {
        restore();
        std::string all;
        char part[4096];
        for (ssize_t n = 0; (n = ::read(ends_[0], part, sizeof part)) > 0;)
            all.append(part, static_cast<std::size_t>(n));
        return all;
    }

private:
    void restore() noexcept {
        if (former_ < 0) return;
        ::dup2(former_, STDERR_FILENO);
        ::close(former_);
        ::close(ends_[1]);
        former_ = -1;
    }

    int ends_[2]{};
    int former_ = -1;
};

}  // namespace

TEST_CASE("each wait for something of the program is described, and only while it lasts", "[describe]") {
    scheduler here;
    here.run([](scheduler& on) -> task<> {
        event flag;
        semaphore permits(0);
        channel<int> full(1), empty(1);
        thread_channel<int> from_threads(on, 2);
        REQUIRE(full.try_send(1));
        CHECK(on.describe().operations().empty());
        CHECK(on.describe().text() == "no operation is pending\n");
        task_group waiting;
        auto f = flag.wait();
        auto s = permits.acquire(2);
        auto c = full.send(2);
        auto r = empty.receive();
        auto t = from_threads.receive();
        auto z = sleep_for(1h);
        waiting.spawn([&]() { return wait_for(f); });
        waiting.spawn([&]() { return wait_for(s); });
        waiting.spawn([&]() { return wait_for(c); });
        waiting.spawn([&]() { return wait_for(r); });
        waiting.spawn([&]() { return wait_for(t); });
        waiting.spawn([&]() { return wait_for(z); });
        co_await yield();
        co_await yield();
        const description all = on.describe();
        CHECK(all.complete());
        CHECK(all.operations().size() == 6);
        for (const auto& [what, stage] : {std::pair{"event wait", "the event is not set"},
                                          {"semaphore acquire", "too few permits are free"},
                                          {"channel send", "the channel is full"},
                                          {"channel receive", "the channel is empty"},
                                          {"thread_channel receive", "the channel is empty"}}) {
            const pending_operation* const one = find(all, what);
            REQUIRE(one != nullptr);
            CHECK(one->stage == stage);
            CHECK(one->next == next_actor::this_program);
            REQUIRE(one->waited.has_value());
            CHECK(*one->waited < 1h);
        }
        const pending_operation* const sleeping = find(all, "sleep");
        REQUIRE(sleeping != nullptr);
        CHECK(sleeping->next == next_actor::time);
        REQUIRE(sleeping->left.has_value());
        CHECK(*sleeping->left > 59min);

        flag.set();
        permits.release(2);
        CHECK(full.try_receive().has_value());
        REQUIRE(empty.try_send(1));
        REQUIRE(from_threads.try_push(1));
        waiting.request_stop();
        on.run_posted();
        CHECK(on.describe().operations().empty());
        co_await waiting.join();
        CHECK(on.describe().operations().empty());
    }(here));
}

TEST_CASE(
    "waits of another scheduler are not described, and objects outlive a scheduler that has waited for them",
    "[describe]") {
    event flag;
    scheduler other;
    {
        scheduler here;
        here.run([](event& e, scheduler& o) -> task<> {
            auto first = e.wait();
            auto waiting = start(wait_for(first));
            scheduler& on = *scheduler::current();
            auto hot = start(e.wait());
            CHECK(on.describe().operations().size() == 2);
            CHECK(o.describe().operations().empty());
            e.set();
            co_await hot;
            co_await waiting;
        }(flag, other));
    }
    flag.reset();
    CHECK(other.describe().operations().empty());
}

namespace {
/// An awaitable of a program's own, which tells nothing of itself.
struct own_awaitable {
    std::coroutine_handle<>* waiting;
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> by) noexcept { *waiting = by; }
    void await_resume() noexcept {}
};
}  // namespace

TEST_CASE(
    "when_all, when_any and join are described by what their children wait for, also where that says nothing",
    "[describe]") {
    scheduler here;
    here.run([](scheduler& on) -> task<> {
        event flag;
        std::coroutine_handle<> waiting[3];
        const auto unknown = [&waiting](int n) -> task<> { co_await own_awaitable{&waiting[n]}; };
        const auto both = [&]() -> task<> { co_await when_all(unknown(0), flag.wait()); };
        const auto first = [&]() -> task<> { co_await when_any(unknown(1), flag.wait()); };
        task_group inner;
        const auto joins = [&]() -> task<> { co_await inner.join(); };
        inner.spawn(unknown, 2);
        task_group outer;
        outer.spawn(both);
        outer.spawn(first);
        outer.spawn(joins);
        for (int n = 0; n < 3; ++n) co_await yield();
        {
            const description all = on.describe();
            INFO(all.text());
            REQUIRE(all.operations().size() == 3);  // two waits for the event
            const pending_operation* const own = find(all, "other awaitable");
            REQUIRE(own != nullptr);
            CHECK(own->stage == "3 coroutines wait for what has no `bind`");
            CHECK(own->next == next_actor::this_program);
        }
        waiting[0].resume();
        waiting[2].resume();
        CHECK(find(on.describe(), "other awaitable")->stage == "1 coroutine waits for what has no `bind`");
        waiting[1].resume();
        flag.set();
        co_await outer.join();
        CHECK(on.describe().operations().empty());
    }(here));
}

TEST_CASE("a wait for a signal waits for something outside", "[describe]") {
    scheduler here;
    signals hang_up(here, {SIGHUP});
    here.run([](scheduler& on, signals& from) -> task<> {
        auto first = start(from.next());
        const description all = on.describe();
        REQUIRE(all.operations().size() == 1);
        CHECK(all.operations()[0].what == "signals next");
        CHECK(all.operations()[0].stage == "no signal has come");
        CHECK(all.operations()[0].next == next_actor::outside);
        ::kill(::getpid(), SIGHUP);
        CHECK(co_await first == SIGHUP);
        CHECK(on.describe().operations().empty());
    }(here, hang_up));
}

TEST_CASE("a stall is printed once, when nothing has moved for the time that was asked for", "[describe]") {
    captured_stderr printed;
    manual_clock time;
    scheduler here(idle::spin{}, time);
    here.run([](scheduler& on) -> task<> {
        event flag;
        on.watch_stalls(5s);
        auto waiting = start(flag.wait());
        co_await sleep_for(4s);
        flag.set();
        co_await waiting;
        flag.reset();
        auto again = start(flag.wait());  // another one: what was pending has ended
        co_await sleep_for(60s);
        flag.set();
        co_await again;
        on.watch_stalls(duration::zero());
        co_await sleep_for(60s);
    }(here));
    const std::string text = printed.text();
    INFO(text);
    const std::string head = "rdmacoro: nothing moves on this scheduler; 2 operations are pending:\n";
    REQUIRE(text.find(head) != std::string::npos);
    CHECK(text.find(head) == text.rfind("rdmacoro: "));
    CHECK(text.find("event wait: the event is not set, for 6") != std::string::npos);
}

TEST_CASE("the watch says nothing while operations end and begin", "[describe]") {
    captured_stderr printed;
    manual_clock time;
    scheduler here(idle::spin{}, time);
    here.run([](scheduler& on) -> task<> {
        on.watch_stalls(5s);
        for (int n = 0; n < 20; ++n) {
            event flag;
            auto waiting = start(flag.wait());
            co_await sleep_for(2s);
            flag.set();
            co_await waiting;
        }
    }(here));
    CHECK(printed.text().empty());
}

TEST_CASE("SIGUSR1 wakes a parked scheduler, which prints what waits", "[describe]") {
    captured_stderr printed;
    bool slept = false;
    bool said = false;
    std::uint64_t parks = 0;
    {
        scheduler here(idle::adaptive(0ns, 0ns));
        event flag;
        std::thread other;
        here.run([](scheduler& on, event& until, std::thread& caller, captured_stderr& text, bool& parked,
                    bool& heard) -> task<> {
            on.describe_on_sigusr1();
            auto waiting = start(until.wait());
            caller = std::thread([&, sleeper = ::gettid()] {
                const auto limit = std::chrono::steady_clock::now() + 20s;
                while (!sleeps(sleeper) && std::chrono::steady_clock::now() < limit)
                    std::this_thread::yield();
                parked = sleeps(sleeper);
                ::raise(SIGUSR1);  // its handler runs here: it does not interrupt the sleep
                heard = text.comes();
                on.post([&until] { until.set(); });
            });
            co_await waiting;
        }(here, flag, other, printed, slept, said));
        other.join();
        parks = here.parks();
    }
    CHECK(slept);
    CHECK(said);
    CHECK(parks > 0);
    REQUIRE(::kill(::getpid(), SIGUSR1) == 0);  // no scheduler is left, and nothing happens
    const std::string text = printed.text();
    INFO(text);
    const std::string head = "rdmacoro: asked by SIGUSR1; 1 operation is pending:\n  event wait";
    CHECK(text.find(head) == 0);
    CHECK(text.find("rdmacoro: ", 1) == std::string::npos);
}

}  // namespace test_coro_describe
