// A scheduler beside another event loop, an epoll loop, in one thread.
#include <rdmacoro/coro/scheduler.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace test_coro_scheduler_beside_epoll {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// The other loop: an epoll instance with an event of its own and the scheduler's descriptor.
class other_loop {
public:
    explicit other_loop(scheduler& on)
        : on_(on), epoll_(::epoll_create1(EPOLL_CLOEXEC)), own_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
        watch(own_);
        watch(on.descriptor());
    }
    ~other_loop() {
        ::close(own_);
        ::close(epoll_);
    }
    other_loop(const other_loop&) = delete;
    other_loop& operator=(const other_loop&) = delete;

    /// Waits once, for 20 seconds at most; `heard` is called for each of its own events.
    template <class Heard>
    void wait(Heard heard) {
        std::chrono::milliseconds limit = 20s;
        const duration scheduler_may = on_.prepare_to_wait();
        if (scheduler_may < limit) limit = std::chrono::ceil<std::chrono::milliseconds>(scheduler_may);
        std::array<epoll_event, 4> events{};
        const int ready = ::epoll_wait(epoll_, events.data(), 4, static_cast<int>(limit.count()));
        ++waits;
        slept += scheduler_may != duration::zero();
        REQUIRE((ready != 0 || limit < 20s));  // else nothing came for 20 s
        for (int n = 0; n < ready; ++n) {
            if (events[static_cast<std::size_t>(n)].data.fd != own_) continue;
            std::uint64_t drained = 0;
            REQUIRE(::read(own_, &drained, sizeof drained) == sizeof drained);
            heard();
        }
    }
    /// Until `done`.
    template <class Done, class Heard>
    void run(Done done, Heard heard) {
        while (!done()) {
            if (!on_.poll() && !done()) wait(heard);
        }
    }
    template <class Done>
    void run(Done done) {
        run(done, [] {});
    }
    /// Any thread may call it. Answers whether it could be told; checks are for the test's own thread.
    [[nodiscard]] bool tell() const noexcept {
        const std::uint64_t one = 1;
        return ::write(own_, &one, sizeof one) == sizeof one;
    }

    int waits = 0;
    int slept = 0;

private:
    void watch(int fd) const {
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        wanted.data.fd = fd;
        REQUIRE(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &wanted) == 0);
    }

    scheduler& on_;
    int epoll_;
    int own_;
};

/// A source that has something to poll when its descriptor is readable.
class bell final : public progress_source {
public:
    bell() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
    ~bell() override { ::close(fd_); }
    bool poll() noexcept override {
        std::uint64_t drained = 0;
        if (::read(fd_, &drained, sizeof drained) != sizeof drained) return false;
        rung.set();
        return true;
    }
    int wake_fd() noexcept override { return has_descriptor ? fd_ : -1; }
    void arm() noexcept override { ++armed; }
    void disarm() noexcept override { --armed; }
    void ring() const {
        const std::uint64_t one = 1;
        REQUIRE(::write(fd_, &one, sizeof one) == sizeof one);
    }

    event rung;
    int armed = 0;
    bool has_descriptor = true;

private:
    int fd_;
};

}  // namespace

TEST_CASE("timers wake the other loop, which sleeps in between") {
    scheduler on;
    other_loop loop(on);
    auto ticking = on.start([]() -> task<int> {
        int ticks = 0;
        while (++ticks < 5) co_await sleep_for(10ms);
        co_return ticks;
    }());
    loop.run([&] { return ticking.done(); });
    CHECK(ticking.get() == 5);
    CHECK(loop.slept >= 4);
    CHECK(loop.waits <= 40);
}

TEST_CASE("the other loop's events make coroutines go on, and posts of other threads wake it") {
    scheduler on;
    other_loop loop(on);
    event told;
    std::atomic<int> posted{0};
    auto waiting = on.start([](event& from) -> task<> { co_await from.wait(); }(told));
    constexpr int most = 100;
    bool could_tell = false;
    std::thread other([&] {
        for (int n = 0; n < most; ++n) {
            const int before = posted.load();
            on.post([&] { ++posted; });
            while (posted.load() == before) std::this_thread::yield();  // so that the loop sleeps before each
        }
        could_tell = loop.tell();
    });
    loop.run([&] { return waiting.done(); }, [&] { told.set(); });
    other.join();
    CHECK(could_tell);
    CHECK(posted == most);
    CHECK(loop.slept > 0);
    CHECK(loop.waits <= 3 * most + 40);
}

TEST_CASE("a task started, or asked to stop, between the preparation and the wait wakes the other loop") {
    scheduler on;
    other_loop loop(on);
    std::optional<root_task<>> late;
    auto nap = on.start([]() -> task<> { co_await sleep_for(1h); }());
    while (on.poll()) {}
    REQUIRE(on.prepare_to_wait() > 1min);
    late.emplace(on, []() -> task<> { co_await yield(); }());
    loop.run([&] { return late->done(); });
    while (on.poll()) {}
    REQUIRE(on.prepare_to_wait() > 1min);
    nap.request_stop();
    loop.run([&] { return nap.done(); });
    CHECK_THROWS_AS(nap.get(), error);
}

TEST_CASE("sources wake the other loop by their descriptors, also when they change") {
    scheduler on;
    other_loop loop(on);
    for (int round = 0; round < 3; ++round) {
        bell own;  // descriptors have the same number again
        on.add_source(own);
        auto heard = on.start([](event& from) -> task<> { co_await from.wait(); }(own.rung));
        while (on.poll()) {}
        REQUIRE(on.prepare_to_wait() == duration::max());
        CHECK(own.armed == 1);
        own.ring();
        const int before = loop.waits;
        loop.run([&] { return heard.done(); });
        CHECK(loop.waits <= before + 2);
        CHECK(own.armed == 0);
        // Nothing is left readable.
        REQUIRE(on.prepare_to_wait() == duration::max());
        on.poll();
        CHECK(own.armed == 0);
        own.has_descriptor = false;
        CHECK(on.prepare_to_wait() == duration::zero());
        CHECK(own.armed == 0);
    }
}

TEST_CASE("once another loop has the descriptor, no wait allocates, the first one included") {
    scheduler on;
    bell first, second;
    on.add_source(first);
    on.add_source(second);
    static_cast<void>(on.descriptor());
    const std::size_t before = test::allocations();
    for (int n = 0; n < 3; ++n) {
        const duration limit = on.prepare_to_wait();
        on.poll();
        if (limit != duration::max()) FAIL_CHECK("it may not wait");
    }
    const std::size_t made = test::allocations() - before;
    if (test::counts_allocations) CHECK(made == 0);
}

TEST_CASE("run and the scheduler's end disarm what was prepared for a wait") {
    bell own;
    {
        scheduler on;
        on.add_source(own);
        CHECK(on.prepare_to_wait() == duration::max());
        CHECK(own.armed == 1);
        on.run([]() -> task<> { co_await yield(); }());
        CHECK(own.armed == 0);
        CHECK(on.prepare_to_wait() == duration::max());
        CHECK(own.armed == 1);
    }
    CHECK(own.armed == 0);
}

TEST_CASE("a scheduler that never parks lets the other loop wait for nothing") {
    scheduler on{idle::spin{}};
    CHECK(on.prepare_to_wait() == duration::zero());
    CHECK_FALSE(on.poll());
}

TEST_CASE("a poll in which a task ended returns true, so that no loop waits for what is over") {
    scheduler on;
    auto quick = on.start([]() -> task<> { co_await yield(); }());
    bool said = true;
    while (!quick.done()) said = on.poll();
    CHECK(said);
    CHECK_FALSE(on.poll());
}

TEST_CASE("a poll ends when its turns have taken some fifty microseconds") {
    scheduler on;
    unsigned computed = 0;
    auto computing = on.start([](unsigned& count) -> task<> {
        task_group several;
        for (int n = 0; n < 8; ++n) {
            several.spawn(
                [](unsigned& all) -> task<> {
                    for (int round = 0; round < 50; ++round) {
                        const auto until = std::chrono::steady_clock::now() + 30us;
                        while (std::chrono::steady_clock::now() < until) {}
                        ++all;
                        co_await yield();
                    }
                },
                std::ref(count));
        }
        co_await several.join();
    }(computed));
    unsigned most = 0;
    while (!computing.done()) {
        const unsigned before = computed;
        on.poll();
        most = std::max(most, computed - before);
    }
    CHECK(computed == 400);
    CHECK(most <= 4);  // two of them take sixty
    computing.get();
}

TEST_CASE("a poll is bounded, and a coroutine of the scheduler may start others in it") {
    scheduler on;
    int rounds = 0;
    auto endless = on.start([](int& n) -> task<> {
        task_group group;
        group.spawn([&n]() -> task<> {
            for (;; ++n) co_await yield();
        });
        co_await group.join();
    }(rounds));
    for (int n = 0; n < 3; ++n) CHECK(on.poll());
    CHECK(rounds > 0);
    CHECK(on.prepare_to_wait() == duration::zero());
    CHECK(scheduler::current() == nullptr);
}

}  // namespace test_coro_scheduler_beside_epoll
