// That the loop that was asked for is the one that the cases run in, and that it loses no wake-up.
#include "conformance.hpp"

#include <chrono>
#include <cstdlib>

namespace test_conformance_loops {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Parks whenever nothing moves: every message wakes a sleeper, or arrives just before it sleeps.
idle::adaptive sleepy() { return idle::adaptive(duration::zero(), duration::zero()); }

CONFORMANCE_CASE("the loop that was asked for drives the scheduler and waits for what comes",
                 every_real_transport) {
    const auto loop = make_loop(sleepy());
    const auto domain = over.open(loop->on());
    const int answer = loop->run([]() -> task<int> {
        co_await sleep_for(5ms);
        co_return 42;
    }());
    CHECK(answer == 42);
    const bool own = loop_name() == "own";
    if (!own && over.is().can_park) CHECK(loop->waits() > 0);
    // A guest never sleeps by itself.
    if (own && over.is().can_park) CHECK(loop->on().parks() > 0);
    if (!own) CHECK(loop->on().parks() == 0);
    CHECK_THROWS_AS(loop->run([]() -> task<> {
        co_await yield();
        throw std::runtime_error("of the task");
    }()),
                    std::runtime_error);
}

/// How often each of two schedulers is to be woken: RDMACORO_WAKE_UPS, in CI a few thousand.
std::uint64_t wake_ups() {
    const char* const said = std::getenv("RDMACORO_WAKE_UPS");
    return said != nullptr ? std::strtoull(said, nullptr, 10) : 5000;
}

/// Sends numbers back and forth until both have slept so often, and `most` messages at most. A message that wakes nothing is answered when
/// a timer of the transport ends the sleep, after up to a second, if there is one; `late` counts those.
task<std::uint64_t> to_and_fro(peer end, test_loop& mine, const std::atomic<std::uint64_t>& theirs,
                               std::uint64_t wanted, int& late) {
    const std::uint64_t most =
        60 * wanted + 1000;  // on a loaded machine many an answer is there before the sleep
    std::uint64_t sent = 0;
    while (sent < most && (sleeps(mine) < wanted || theirs.load() < wanted)) {
        std::uint64_t back = 0;
        const auto began = std::chrono::steady_clock::now();
        co_await end.send(bytes_of(sent));
        co_await timeout(end.recv(room_for(back)), 20s);
        late += std::chrono::steady_clock::now() - began > 500ms;
        demand(back == sent, "the answer");
        ++sent;
    }
    co_await end.close();
    co_return sent;
}
task<> answers(peer end, test_loop& mine, std::atomic<std::uint64_t>& slept) {
    for (;;) {
        std::uint64_t value = 0;
        const auto got = co_await as_result(timeout(end.recv(room_for(value)), 20s));
        if (!got) {
            demand(got.error() == errc::closed, "how the last receive ended");
            co_return;
        }
        slept.store(sleeps(mine));
        co_await end.send(bytes_of(value));
    }
}

CONFORMANCE_CASE("two threads that park at every wait wake each other, and no wake-up is lost",
                 every_real_transport) {
    const std::uint64_t wanted = wake_ups() / static_cast<std::uint64_t>(over.is().slowness);
    std::atomic<std::uint64_t> slept{0};
    std::atomic<bool> listens{false};
    std::exception_ptr failure;
    std::string address;
    std::thread other([&] {
        try {
            const auto loop = make_loop(sleepy());
            const auto domain = over.open(loop->on());
            loop->run([](any_domain& in, std::string at, std::string& where, std::atomic<bool>& ready,
                         test_loop& mine, std::atomic<std::uint64_t>& count) -> task<> {
                any_listener listening = co_await in.listen(std::move(at));
                where = listening.address();
                ready.store(true);
                ready.notify_one();
                peer end = co_await timeout(listening.accept(), 20s);
                co_await answers(std::move(end), mine, count);
            }(*domain, over.address(), address, listens, *loop, slept));
        } catch (...) {
            failure = std::current_exception();
        }
        listens.store(true);
        listens.notify_one();
    });
    listens.wait(false);
    std::uint64_t sent = 0;
    std::uint64_t own_sleeps = 0;
    int late = 0;
    std::exception_ptr own_failure;
    std::chrono::nanoseconds took{};
    try {
        const auto loop = make_loop(sleepy());
        const auto domain = over.open(loop->on());
        const auto began = std::chrono::steady_clock::now();
        if (!address.empty()) {
            sent = loop->run([](any_domain& in, std::string at, test_loop& mine,
                                const std::atomic<std::uint64_t>& theirs, std::uint64_t count,
                                int& slow) -> task<std::uint64_t> {
                peer end = co_await timeout(in.connect(std::move(at)), 20s);
                co_return co_await to_and_fro(std::move(end), mine, theirs, count, slow);
            }(*domain, address, *loop, slept, wanted, late));
        }
        took = std::chrono::steady_clock::now() - began;
        own_sleeps = sleeps(*loop);
    } catch (...) {
        own_failure = std::current_exception();
    }
    other.join();
    if (failure) std::rethrow_exception(failure);
    if (own_failure) std::rethrow_exception(own_failure);
    CAPTURE(sent);
    CHECK(late <= 2);  // a loaded machine keeps a thread waiting so long, but not again and again
    if (over.is().can_park) {
        CHECK(own_sleeps >= wanted);
        CHECK(slept >= wanted);
    }
    if (std::getenv("RDMACORO_WAKE_UPS") != nullptr)
        WARN(loop_name() << ": " << sent << " round trips, woken " << own_sleeps << " and " << slept
                         << " times, in "
                         << std::chrono::duration_cast<std::chrono::milliseconds>(took).count() << " ms");
}

}  // namespace

}  // namespace test_conformance_loops
