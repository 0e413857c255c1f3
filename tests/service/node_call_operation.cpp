#include <rdmacoro/service/node_call_operation.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/call_operation.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <string>

namespace test_service_node_call_operation {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

template <class R, class F>
auto call_to(node_id to, generation born, F body) {
    using call = call_operation<R, F>;
    auto make = [=](time_point until) {
        if (born == generation()) return detail::node_call<R, call>{to, born, {}, body(until)};
        return detail::node_call<R, call>{to, born, call(F(body), {}, until), {}};
    };
    return node_call_operation<R, decltype(make)>(std::move(make));
}
template <class Op>
task<std::string> text_of_call(Op op) {
    try {
        static_cast<void>(co_await std::move(op));
    } catch (const error& failed) {
        co_return std::string(failed.what());
    }
    co_return "no error";
}
task<int> refused_call(time_point) {
    throw error(errc::access_denied, "call of kv.get");
    co_return 0;
}
task<int> stopped_call(time_point) {
    throw error(errc::canceled, "call of kv.get");
    co_return 0;
}

}  // namespace

TEST_CASE("a call to a node ends with its value, or with an error that names the node once") {
    scheduler().run([]() -> task<> {
        const int two = co_await call_to<int>(9, generation{7}, [](time_point until) -> task<int> {
            CHECK(until == time_point());
            co_return 2;
        });
        CHECK(two == 2);
        const std::string text = co_await text_of_call(call_to<int>(9, generation{7}, refused_call));
        CHECK_THAT(text, Catch::StartsWith("node 9 (generation 0000000000000007): call of kv.get"));
        // One that had to connect names it by itself.
        const std::string own = co_await text_of_call(call_to<int>(9, generation(), refused_call));
        CHECK_THAT(own, Catch::StartsWith("call of kv.get"));
        const std::string canceled = co_await text_of_call(call_to<int>(9, generation{7}, stopped_call));
        CHECK_THAT(canceled, Catch::StartsWith("node 9 (generation 0000000000000007): call of kv.get"));
    }());
}

TEST_CASE("a call to a node is given the time by which it has to end, and is canceled then") {
    sim_world world;  // time stands still but for its timers
    scheduler on{idle::spin{}, world.time()};
    const sim::domain network(on, {.world = &world});
    on.run([]() -> task<> {
        const time_point begin = scheduler::current()->now();
        const time_point until = co_await timeout(
            call_to<time_point>(9, generation{7},
                                [](time_point given) -> task<time_point> { co_return given; }),
            2ms);
        CHECK(until == begin + 2ms);
        const auto late = co_await as_result(timeout(call_to<int>(9, generation{7},
                                                                  [](time_point) -> task<int> {
                                                                      co_await sleep_for(1h);
                                                                      co_return 0;
                                                                  }),
                                                     2ms));
        CHECK(late.error() == errc::timed_out);
        CHECK(scheduler::current()->now() == begin + 2ms);
    }());
}

}  // namespace test_service_node_call_operation
