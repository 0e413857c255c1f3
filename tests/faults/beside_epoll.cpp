// A program with an epoll loop of its own drives the scheduler in the same thread, over each transport.
#include "conformance/transports.hpp"

#include "support/catch.hpp"
#include "support/child_process.hpp"

#include <chrono>

#include <sys/epoll.h>
#include <unistd.h>

namespace test_faults_beside_epoll {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t rounds = 2000;

template <class Variant>
void bounce(const std::string& address) {
    using T = typename Variant::transport_type;
    scheduler on(idle::adaptive(0ms, 0ms));
    const auto domain = Variant::open(on);
    on.run([](auto& in, const std::string& where) -> task<> {
        auto end = co_await timeout(connect<T>(in, where), 30s);
        std::uint64_t value = 0;
        for (;;) {
            const auto got = co_await as_result(end.recv(room_for(value)));
            if (!got) co_return;
            co_await end.send(bytes_of(value));
        }
    }(*domain, address));
}

template <class Variant>
task<std::uint64_t> exchange(typename Variant::transport_type::domain& in, child_process& with) {
    auto listening = co_await listen<typename Variant::transport_type>(in, Variant::address());
    with.tell(listening.address());
    auto end = co_await timeout(listening.accept(), 30s);
    std::uint64_t good = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        std::uint64_t back = 0;
        co_await end.send(bytes_of(round));
        co_await timeout(end.recv(room_for(back)), 20s);
        good += back == round;
    }
    co_await end.close();
    co_return good;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("an epoll loop that drives a scheduler sleeps between messages and misses none", "",
                        every_real_transport) {
    child_process child([](const std::string& address) { bounce<TestType>(address); });
    scheduler on;
    const auto domain = TestType::open(on);
    auto exchanging = on.start(exchange<TestType>(*domain, child));
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    REQUIRE(::epoll_ctl(epoll, EPOLL_CTL_ADD, on.descriptor(), &wanted) == 0);
    std::uint64_t waits = 0;
    std::uint64_t woken = 0;
    while (!exchanging.done()) {
        if (on.poll()) continue;
        const duration limit = std::min<duration>(on.prepare_to_wait(), 60s);
        epoll_event came{};
        const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
        woken += ::epoll_wait(epoll, &came, 1, static_cast<int>(milliseconds)) == 1 && limit > 0s;
        waits += limit > 0s;
    }
    ::close(epoll);
    CHECK(exchanging.get() == rounds);
    if (can_park<TestType>) {
        CHECK(woken > 0);
        CHECK(waits < 40 * rounds);  // it does not spin on a descriptor that stays readable
    }
}

}  // namespace test_faults_beside_epoll
