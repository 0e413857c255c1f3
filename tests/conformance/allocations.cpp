#include "conformance.hpp"

#include "support/counting_new.hpp"

#include <array>
#include <deque>
#include <optional>

namespace test_conformance_allocations {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

// Repeats its statements until caches and pools are warm, then counts the allocations of further rounds. A macro, because the
// statements are part of the coroutine: a task of their own would take a frame.
#define CHECK_NO_ALLOCATIONS(...)                                                                            \
    do {                                                                                                     \
        for (int warm = 0; warm < (w.is().slowness == 1 ? 50 : 20); ++warm) __VA_ARGS__                      \
        const std::size_t before = allocations();                                                            \
        for (int round = 0; round < 200 / w.is().slowness; ++round) __VA_ARGS__                              \
        const std::size_t taken = allocations() - before;                                                    \
        CHECK(taken == 0);                                                                                   \
    } while (false)

task<> matched(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{1000}, std::size_t{4096}, std::size_t{1} << 20}) {
        CAPTURE(bytes);
        const auto data = pattern(bytes, 1);
        std::vector<std::byte> into(bytes);
        CHECK_NO_ALLOCATIONS({
            auto receiving = start(p.b.recv(into, 1));
            co_await p.a.send(data, 1);
            co_await receiving;
        });
    }
}
CONFORMANCE_CASE("send and a matched receive allocate nothing", every_counted_transport) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, matched);
}

task<> unexpected(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{1000}, std::size_t{4096}, std::size_t{1} << 20}) {
        CAPTURE(bytes);
        const auto data = pattern(bytes, 1);
        std::vector<std::byte> into(bytes);
        CHECK_NO_ALLOCATIONS({
            auto sending = start(p.a.send(data, 1));
            co_await p.b.probe(1);
            co_await p.b.recv(into, 1);
            co_await sending;
        });
    }
}
CONFORMANCE_CASE("unexpected messages, probes and their receives allocate nothing", every_counted_transport) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, unexpected);
}

task<> synchronous(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{100000}, std::size_t{2} << 20}) {
        CAPTURE(bytes);
        const auto data = pattern(bytes, 1);
        std::vector<std::byte> into(bytes);
        CHECK_NO_ALLOCATIONS({
            auto sending = start(p.a.ssend(data, 1));
            co_await p.b.recv(into, 1);
            co_await sending;
        });
    }
}
CONFORMANCE_CASE("synchronous sends allocate nothing", every_counted_transport) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, synchronous);
}

task<> lent(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4000}, std::size_t{100000}}) {
        CAPTURE(bytes);
        const auto data = pattern(bytes, 1);
        CHECK_NO_ALLOCATIONS({
            auto receiving = start(p.b.recv_lent(1));
            co_await p.a.send(data, 1);
            const message got = co_await receiving;
        });
    }
}
CONFORMANCE_CASE("lent receives allocate nothing", every_counted_transport) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, lent);
}

task<> one_sided(two_domains& w) {
    auto p = co_await w.connected();
    std::vector<std::byte> memory(std::size_t{2} << 20);
    const region open = w.there().register_memory(memory, access_rights::all);
    // More than is done at once: what the others wait in is kept. One at a time they wait where the loop below comes to the end of a turn.
    {
        std::vector<std::byte> into(memory.size());
        std::deque<decltype(start(p.a.rdma_get(open.remote(), into)))> together;
        for (int n = 0; n < 16; ++n) together.emplace_back(p.a.rdma_get(open.remote(), into));
        for (auto& each : together) co_await each;
    }
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
        CAPTURE(bytes);
        std::vector<std::byte> here(bytes);
        CHECK_NO_ALLOCATIONS({
            co_await p.a.rdma_get(open.remote().part(0, bytes), here);
            co_await p.a.rdma_put(here, open.remote().part(8, bytes));
        });
    }
}
CONFORMANCE_CASE("get and put allocate nothing", every_counted_transport) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, one_sided);
}

task<> suspended(two_domains& w) {
    // Sends that wait for credit and receives that wait for messages, many at a time.
    auto p = co_await w.connected({}, least_memory());
    const auto data = pattern(4000, 1);
    std::vector<std::byte> into(4000);
    // How many are under way at a time is for the timing to decide, and with it how long the tables of them become. What belongs to the
    // work is allocated in each row.
    int clean = 0;
    for (int row = 0; row < 40 && clean < 2; ++row) {
        const std::size_t before = allocations();
        for (int round = 0; round < 100 / w.is().slowness; ++round) {
            std::array<std::optional<started<any_operation<void>>>, 200> sends;
            for (auto& s : sends) s.emplace(p.a.send(data, 1));
            for (std::size_t i = 0; i < sends.size(); ++i) co_await p.b.recv(into, 1);
            for (auto& s : sends) co_await *s;
        }
        clean = allocations() == before ? clean + 1 : 0;
    }
    CHECK(clean == 2);
}
CONFORMANCE_CASE("sends that wait for credit allocate nothing", every_counted_transport) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, suspended);
}

task<> limited(two_domains& w) {
    // A time limit and a token on each operation.
    auto p = co_await w.connected();
    local_stop_source stop;
    std::uint64_t value = 0;
    const std::uint64_t said = 1;
    // Whether an operation waits for its message, or the message for its receive, is a matter of time: the scheduler's first timers
    // and the first stored message come before.
    co_await timeout(timeout(sleep_for(std::chrono::microseconds(1)), std::chrono::seconds(5)),
                     std::chrono::seconds(5));
    co_await p.a.send(bytes_of(said));
    co_await p.b.probe();
    co_await p.b.recv(room_for(value));
    CHECK_NO_ALLOCATIONS({
        co_await timeout(p.a.send(bytes_of(said)), std::chrono::seconds(5));
        co_await with_stop(timeout(p.b.recv(room_for(value)), std::chrono::seconds(5)), stop.get_token());
    });
}
CONFORMANCE_CASE("time limits and stop tokens allocate nothing", every_counted_transport) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, limited);
}

}  // namespace

}  // namespace test_conformance_allocations
