#include "support/policy_cases.hpp"

#include "support/counting_new.hpp"

namespace test_conformance_policies_allocations {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

task<> allocates_nothing(two_domains& w, list_name list) {
    // The first rounds fill the pools and registration caches of a list, and adapt its limits.
    const int rounds_before = 300 / w.is().slowness;
    const int rounds = 200 / w.is().slowness;
    auto p = co_await w.connected_with(list);
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{1000}, std::size_t{10000}, std::size_t{100000}, std::size_t{1} << 20}) {
        const auto data = pattern(bytes, 1);
        std::vector<std::byte> into(bytes);
        for (const posted when : posted_when) {
            CAPTURE(bytes, when);
            std::size_t before = 0;
            for (int round = -rounds_before; round < rounds; ++round) {
                if (round == 0) before = allocations();
                if (when != posted::late) {
                    auto receiving = start(p.b.recv(into, 1));
                    if (when == posted::early) {
                        for (int turn = 0; turn < soon; ++turn) co_await yield();
                    }
                    co_await p.a.send(data, 1);
                    co_await receiving;
                } else {
                    auto sending = start(p.a.ssend(data, 1));
                    co_await p.b.probe(1);
                    co_await p.b.recv(into, 1);
                    co_await sending;
                }
            }
            const std::size_t taken = allocations() - before;
            CHECK(taken == 0);
        }
        CHECK(same_bytes(into, data));
    }
}
void conform_without_allocations(const variant& over, list_name list) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform(over, list, allocates_nothing);
}

}  // namespace

CONFORMANCE_CASE("eager, staged_get and get_rendezvous allocate nothing", every_counted_transport) {
    conform_without_allocations(over, list_name::staged_short);
}
CONFORMANCE_CASE("put_rendezvous allocates nothing", every_counted_transport) {
    conform_without_allocations(over, list_name::eager_and_put);
}
CONFORMANCE_CASE("reuse_aware_eager and speculative, with pieces behind them, allocate nothing",
                 every_counted_transport) {
    conform_without_allocations(over, list_name::speculative_put);
}
CONFORMANCE_CASE("cooperative_rendezvous allocates nothing", every_counted_transport) {
    conform_without_allocations(over, list_name::eager_and_cooperative);
}

}  // namespace test_conformance_policies_allocations
