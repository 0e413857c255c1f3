#include <rdmacoro/coro/progress_source.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/sleep_teller.hpp"

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

namespace test_coro_progress_source {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// Sets an event after it has been polled so many times.
struct countdown final : progress_source {
    event done;
    int left;
    explicit countdown(int polls) : left(polls) {}
    bool poll() noexcept override {
        if (left == 0 || --left != 0) return false;
        done.set();
        return true;
    }
};

/// Events that another thread writes into a descriptor, as a completion channel does: silent unless armed.
struct doorbell final : progress_source {
    int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    std::atomic<bool> armed{false};
    std::atomic<int> sent{0};
    int seen = 0;
    event got;

    ~doorbell() override { ::close(fd); }
    void ring() noexcept {
        sent.fetch_add(1, std::memory_order_seq_cst);
        if (!armed.load(std::memory_order_seq_cst)) return;
        const std::uint64_t one = 1;
        if (::write(fd, &one, sizeof one) != sizeof one) std::abort();
    }
    bool poll() noexcept override {
        const int now = sent.load(std::memory_order_seq_cst);
        if (now == seen) return false;
        seen = now;
        got.set();
        return true;
    }
    int wake_fd() noexcept override { return fd; }
    void arm() noexcept override { armed.store(true, std::memory_order_seq_cst); }
    void disarm() noexcept override {
        armed.store(false, std::memory_order_seq_cst);
        std::uint64_t drained = 0;
        [[maybe_unused]] const auto taken = ::read(fd, &drained, sizeof drained);
    }
};

}  // namespace

TEST_CASE("a source is polled each turn, also while coroutines are busy") {
    test::virtual_time world;
    countdown source(10);
    world.on.add_source(source);
    int yields = 0;
    world.run([&]() -> task<> {
        while (!source.done.is_set()) {
            ++yields;
            co_await yield();
        }
    }());
    CHECK(yields <= 12);
    CHECK(yields >= 9);
}

TEST_CASE("a source that is removed or destroyed is not polled any more") {
    test::virtual_time world;
    countdown kept(3);
    countdown removed(1);
    world.on.add_source(removed);
    {
        countdown gone(1);
        world.on.add_source(gone);
        world.on.add_source(kept);
    }
    world.on.remove_source(removed);
    world.run([](countdown& source) -> task<> { co_await source.done.wait(); }(kept));
    CHECK(removed.left == 1);
}

TEST_CASE("a source that the poll of another removes is not polled any more and those behind it are") {
    struct remover final : progress_source {
        scheduler* on = nullptr;
        progress_source* next = nullptr;
        bool by_nested_turn = false;
        bool poll() noexcept override {
            if (next == nullptr) return false;
            progress_source* const gone = std::exchange(next, nullptr);
            if (!by_nested_turn) {
                on->remove_source(*gone);
            } else {
                on->post([this, gone] { on->remove_source(*gone); });
                on->turn();
            }
            return true;
        }
    };
    struct counter final : progress_source {
        int polls = 0;
        bool poll() noexcept override {
            ++polls;
            return false;
        }
    };
    for (const bool nested : {false, true}) {
        INFO("by a nested turn: " << nested);
        scheduler on;
        remover first;
        counter removed;
        counter kept;
        first.on = &on;
        first.by_nested_turn = nested;
        on.add_source(first);
        on.add_source(removed);
        on.add_source(kept);
        on.turn();
        CHECK(removed.polls == 1);
        CHECK(kept.polls == 1);
        first.next = &removed;
        on.turn();
        CHECK(removed.polls == 1);
        CHECK(kept.polls == 2);
        on.turn();
        CHECK(removed.polls == 1);
        CHECK(kept.polls == 3);
    }
}

TEST_CASE("a parked scheduler is woken by the descriptor of a source, every time") {
    constexpr int rounds = 3000;
    scheduler on(idle::adaptive(0ns, 0ns));
    doorbell bell;
    on.add_source(bell);
    test::sleep_teller sleeper;
    on.add_source(sleeper);
    std::atomic<int> answered{0};
    std::thread ringer([&] {
        for (int i = 1; i <= rounds; ++i) {
            if (i % 2 == 0) sleeper.until_it_falls_asleep();  // in the others it may be on its way
            bell.ring();
            while (answered.load(std::memory_order_acquire) != i) std::this_thread::yield();
        }
    });
    on.run([](doorbell& b, std::atomic<int>& answers) -> task<> {
        for (int i = 1; i <= rounds; ++i) {
            co_await b.got.wait();
            b.got.reset();
            answers.store(i, std::memory_order_release);
        }
    }(bell, answered));
    ringer.join();
    CHECK(bell.seen == rounds);
    CHECK(on.parks() >= rounds / 2);
}

TEST_CASE("a scheduler with a source that cannot wake it never sleeps") {
    struct mute final : progress_source {
        int polls = 0;
        event tired;
        bool poll() noexcept override {
            if (++polls != 5000) return false;
            tired.set();
            return true;
        }
    } source;
    scheduler on(idle::adaptive(0ns, 0ns));
    doorbell silent;
    on.add_source(silent);
    on.add_source(source);
    on.run([](event& e) -> task<> { co_await e.wait(); }(source.tired));
    CHECK(source.polls >= 5000);
    CHECK(on.parks() == 0);
}

TEST_CASE("a scheduler with hundreds of sources parks, and each of them wakes it") {
    constexpr std::size_t count = 300;
    scheduler on(idle::adaptive(0ns, 0ns));
    // Sources that have gone take no place.
    for (std::size_t n = 0; n < 3 * count; ++n) {
        doorbell gone;
        on.add_source(gone);
    }
    std::vector<std::unique_ptr<doorbell>> bells;
    for (std::size_t n = 0; n < count; ++n) {
        bells.push_back(std::make_unique<doorbell>());
        on.add_source(*bells.back());
    }
    test::sleep_teller sleeper;
    on.add_source(sleeper);
    std::atomic<std::size_t> answered{0};
    std::thread ringer([&] {
        for (std::size_t n = 0; n < count; ++n) {
            sleeper.until_it_falls_asleep();
            bells[n]->ring();
            while (answered.load(std::memory_order_acquire) != n + 1) std::this_thread::yield();
        }
    });
    on.run([](auto& all, std::atomic<std::size_t>& answers) -> task<> {
        for (std::size_t n = 0; n < all.size(); ++n) {
            co_await all[n]->got.wait();
            answers.store(n + 1, std::memory_order_release);
        }
    }(bells, answered));
    ringer.join();
    const std::uint64_t parks = on.parks();
    CHECK(parks >= count);
    on.run([]() -> task<> {
        co_await sleep_for(100ms);
    }());                       // longer than a loaded machine takes to come to park
    CHECK(on.parks() > parks);  // nothing else can end that sleep
}

}  // namespace test_coro_progress_source
