#include "policies.hpp"

#include "support/counting_new.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

// Lists in which each policy carries some of the sizes below, speculation with pieces behind it and memory used again too.
using get_list = protocols<eager<>, staged_get<up_to<16384>>, get_rendezvous<>>;
using speculative_list =
    protocols<reuse_aware_eager<>, speculative<put_rendezvous<up_to<300000>>>, segmented<>>;
using cooperative_list = protocols<eager<>, cooperative_rendezvous<>, segmented<>>;

namespace {

/// Rounds after which everything that a list keeps is there: free places, pages registered, what adapts has adapted.
constexpr int rounds_before = 300 / slowness;
constexpr int rounds = 200 / slowness;

}  // namespace

template <class P, class T>
task<> allocates_nothing(world<T>& w) {
    auto p = co_await join<P>(w);
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
template <class P, class Variant>
void conform_without_allocations() {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    conform<Variant>(allocates_nothing<P, typename Variant::transport_type>);
}

TEMPLATE_LIST_TEST_CASE("eager, staged_get and get_rendezvous allocate nothing", "", every_real_transport) {
    conform_without_allocations<get_list, TestType>();
}
TEMPLATE_LIST_TEST_CASE("put_rendezvous allocates nothing", "", every_real_transport) {
    conform_without_allocations<protocols<eager<>, put_rendezvous<>>, TestType>();
}
TEMPLATE_LIST_TEST_CASE("reuse_aware_eager and speculative, with pieces behind them, allocate nothing", "",
                        every_real_transport) {
    conform_without_allocations<speculative_list, TestType>();
}
TEMPLATE_LIST_TEST_CASE("cooperative_rendezvous allocates nothing", "", every_real_transport) {
    conform_without_allocations<cooperative_list, TestType>();
}
