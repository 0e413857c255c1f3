#include "conformance/transports.hpp"

#include <rdmacoro/coro/describe.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/late_timers.hpp"

#include <chrono>
#include <csignal>

namespace test_faults_parking {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Parks at every wait, so that each message races with a scheduler that falls asleep.
idle::adaptive sleepy() { return idle::adaptive(duration::zero(), duration::zero()); }

/// Parks so, and no timer ends its sleep in time: where a wake-up is lost it sleeps for seconds. Emulated devices need their timers.
struct sleeper {
    late_timers time{slow_devices ? duration::zero() : late_timers::usual};
    scheduler on{sleepy(), time};
    sleeper() { on.add_source(time); }
    ~sleeper() { on.remove_source(time); }
};

using real_time = std::chrono::steady_clock;
bool woken_since(real_time::time_point began) { return real_time::now() - began < late_timers::woken_within; }

template <class Variant, class Body>
void as_client(const std::string& address, Body body) {
    using T = typename Variant::transport_type;
    sleeper sleeps;
    const auto domain = Variant::open(sleeps.on);
    sleeps.on.run([](auto& in, const std::string& where, Body run) -> task<> {
        auto end = co_await timeout(connect<T>(in, where), 30s);
        co_await run(end);
    }(*domain, address, body));
}

template <class T>
task<> bounces(endpoint<T>& end) {
    std::uint64_t value = 0;
    for (;;) {
        const auto got = co_await as_result(end.recv(room_for(value)));
        if (!got) co_return;
        co_await end.send(bytes_of(value));
    }
}

template <class T>
task<> reads_a_stream(endpoint<T>& end) {
    std::vector<std::byte> into(70000);
    for (;;) {
        const auto got = co_await as_result(end.recv(into));
        if (!got) co_return;
        if (got->tag == 1) co_await end.send({}, 1);
    }
}

template <class T>
task<> dies_when_told(endpoint<T>& end) {
    co_await end.recv({}, 1);
    ::kill(::getpid(), SIGKILL);
}

template <class Variant>
void with_child(task<> (*theirs)(endpoint<typename Variant::transport_type>&),
                task<> (*ours)(endpoint<typename Variant::transport_type>&, scheduler&)) {
    using T = typename Variant::transport_type;
    child_process child([theirs](const std::string& address) { as_client<Variant>(address, theirs); });
    sleeper sleeps;
    const auto domain = Variant::open(sleeps.on);
    sleeps.on.run([](auto& in, child_process& of, auto body, scheduler& own) -> task<> {
        auto listening = co_await listen<T>(in, Variant::address());
        of.tell(listening.address());
        auto end = co_await timeout(listening.accept(), 30s);
        co_await timeout(body(end, own), case_limit);
    }(*domain, child, ours, sleeps.on));
}

}  // namespace

namespace {
template <class T>
task<> thousands_of_rounds(endpoint<T>& end, scheduler& on) {
    const std::uint64_t parks_before = on.parks();
    for (std::uint64_t round = 0; round < (slow_devices ? 2000 : 5000); ++round) {
        std::uint64_t back = 0;
        const auto began = real_time::now();
        co_await end.send(bytes_of(round));
        co_await timeout(end.recv(room_for(back)), 20s);
        REQUIRE(woken_since(began));
        if (back != round) FAIL_CHECK("round " << round << " brought " << back);
    }
    CHECK(on.parks() > parks_before);
    co_await end.close();
}
}  // namespace
TEMPLATE_LIST_TEST_CASE("no wake-up is lost in thousands of rounds between two processes that park at once",
                        "", every_real_transport) {
    using T = typename TestType::transport_type;
    with_child<TestType>(bounces<T>, thousands_of_rounds<T>);
}

namespace {
template <class T>
task<> fills_the_ring(endpoint<T>& end, scheduler& on) {
    // More than there is room for, again and again: the sender sleeps until the receiver has made some.
    const auto large = pattern(70000, 1);
    const std::uint64_t parks_before = on.parks();
    std::size_t waited_for_room = 0;
    for (int round = 0; round < (slow_devices ? 5 : 30); ++round) {
        for (int n = 0; n < 3000; ++n) {
            const auto began = real_time::now();
            co_await timeout(end.send({}, 2), 20s);
            REQUIRE(woken_since(began));
        }
        for (int n = 0; n < 20; ++n) {
            const auto began = real_time::now();
            auto sending = start(end.send(large, 3));
            for (const pending_operation& one : on.describe().operations())
                waited_for_room += one.next == next_actor::peer_poll || one.next == next_actor::network;
            co_await timeout(sending, 20s);
            REQUIRE(woken_since(began));
        }
        const auto began = real_time::now();
        co_await end.send({}, 1);
        co_await timeout(end.recv({}, 1), 20s);
        REQUIRE(woken_since(began));
    }
    // Emulated devices are waited for in other ways: for credit.
    if (!slow_devices) CHECK(waited_for_room > 0);
    CHECK(on.parks() > parks_before);
    co_await end.close();
}
}  // namespace
TEMPLATE_LIST_TEST_CASE("a sender that sleeps for want of room is woken when there is some", "",
                        every_real_transport) {
    using T = typename TestType::transport_type;
    with_child<TestType>(reads_a_stream<T>, fills_the_ring<T>);
}

namespace {
template <class T>
task<> notices_a_death(endpoint<T>& end, scheduler& on) {
    std::byte into[8];
    auto receiving = start(end.recv(into));
    const auto began = real_time::now();
    co_await end.send({}, 1);
    const auto gone = co_await as_result(receiving);
    CHECK(woken_since(began));
    CHECK(gone.error() == errc::peer_lost);
    CHECK(on.parks() > 0);
}
}  // namespace
TEMPLATE_LIST_TEST_CASE("the death of a peer wakes a scheduler that sleeps", "", every_real_transport) {
    using T = typename TestType::transport_type;
    with_child<TestType>(dies_when_told<T>, notices_a_death<T>);
}

}  // namespace test_faults_parking
