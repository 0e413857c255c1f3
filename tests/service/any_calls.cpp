#include <rdmacoro/service/any_calls.hpp>

#include "support/calls_pair.hpp"

#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace test_service_any_calls {

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(std::is_base_of_v<any_calls, calls<sim>>);
static_assert(!std::is_copy_constructible_v<any_calls> && !std::is_move_constructible_v<any_calls>);
static_assert(std::has_virtual_destructor_v<any_calls>);
// Made of an endpoint by `calls` alone.
static_assert(!std::is_constructible_v<any_calls, detail::connection_base&>);

namespace {

/// What a program's function takes: whatever the transport and the list.
task<std::string> colour(any_calls& of) { co_return co_await of.call(kv::get, "colour"); }

/// A list of a program's own, beside the transport's.
using own_list = protocols<eager<>, segmented<>>;

}  // namespace

TEST_CASE("one function makes calls over endpoints of different lists") {
    scheduler on;
    sim::domain domain(on);
    on.run([](sim::domain& here) -> task<> {
        auto listening = co_await listen<sim>(here, "one");
        auto listening_too = co_await listen<sim, own_list>(here, "two");
        auto accepting = start(listening.accept());
        auto accepting_too = start(listening_too.accept());
        endpoint<sim> a = co_await connect<sim>(here, "one");
        endpoint<sim, own_list> c = co_await connect<sim, own_list>(here, "two");
        endpoint<sim> b = co_await accepting;
        endpoint<sim, own_list> d = co_await accepting_too;
        {
            shop of;
            calls<sim> at_b(b, of.store), at_a(a);
            calls<sim, own_list> at_d(d, of.store), at_c(c);
            for (any_calls* const each : {static_cast<any_calls*>(&at_a), static_cast<any_calls*>(&at_c)}) {
                const std::string said = co_await colour(*each);
                CHECK(said == "red");
            }
            CHECK(a.counts().messages_sent != 0);
            CHECK(c.counts().messages_sent != 0);
        }
        a.abort();
        c.abort();
    }(domain));
}

CALLS_CASE("calls are owned and ended without their type") {
    run_ends(over, [](calls_link link) -> task<> {
        shop there;
        std::vector<std::unique_ptr<any_calls>> all;
        all.push_back(link.b.make_calls());
        all.back()->serve(there.store);
        all.push_back(link.a.make_calls());
        const std::string said = co_await colour(*all.back());
        CHECK(said == "red");
        const std::uint64_t sum = co_await all.back()->call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        co_await all.front()->drain();
        CHECK(all.front()->bytes_copied() != 0);
    });
}

}  // namespace test_service_any_calls
