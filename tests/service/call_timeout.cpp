#include <rdmacoro/service/call_timeout.hpp>

#include <rdmacoro/service/node_calls.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"
#include "support/shop.hpp"
#include "support/virtual_nodes.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test_service_call_timeout {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("a call whose peer is the first to say that its time is over has timed out") {
    in_virtual_time([](sim::domain& left, sim::domain& right) -> task<> {
        node<sim> here(1, {}, left);
        node_calls<sim> peers(here);
        node<sim> far(9, {}, right);
        co_await far.listen("sim://nine");
        here.add({.id = 9, .urls = {"sim://nine"}});
        auto raw = far.peer(1);
        std::string last;
        const auto answered = [&](auto op, std::string_view text) -> task<std::error_code> {
            auto pending = start(std::move(op));
            const message request = co_await raw.recv_lent(any_tag);
            detail::call_failure expired;
            expired.set(call_errc::expired, text);
            co_await raw.send(expired.bytes(), detail::call_tag(detail::call_kind::answer,
                                                                detail::call_number(request.tag())));
            try {
                co_await pending;
            } catch (const error& failed) {
                last = failed.what();
                CHECK(was_answered(failed) == (failed.code() == call_errc::expired));
                co_return failed.code();
            }
            co_return std::error_code();
        };
        const time_point begin = scheduler::current()->now();
        {
            const auto fixed = co_await answered(timeout(peers.call(9, kv::add, 1U, 2U), 1min), "");
            CHECK(fixed == errc::timed_out);
            CHECK_THAT(last, Catch::Contains("node 9") && Catch::Contains("kv.add, in 60000 ms"));
            const auto encoded = co_await answered(timeout(peers.call(9, kv::get, "colour"), 1min), "");
            CHECK(encoded == errc::timed_out);
            // It did not say so of this call: a handler has ended by that, or there was no limit.
            const auto nested = co_await answered(timeout(peers.call(9, kv::add, 1U, 2U), 1min), "of a lock");
            CHECK(nested == call_errc::expired);
            const auto unlimited = co_await answered(peers.call(9, kv::add, 1U, 2U), "");
            CHECK(unlimited == call_errc::expired);
        }
        std::vector<node_id> ids(1, 9);
        auto of_several = start(timeout(peers.call_all(std::move(ids), kv::get, "colour"), 1min));
        const message request = co_await raw.recv_lent(any_tag);
        detail::call_failure expired;
        expired.set(call_errc::expired);
        co_await raw.send(expired.bytes(),
                          detail::call_tag(detail::call_kind::answer, detail::call_number(request.tag())));
        const auto all = co_await of_several;
        CHECK(all[0].ended.error() == errc::timed_out);
        CHECK_THAT(all[0].why, Catch::Contains("node 9"));
        CHECK(time_since(begin) < 1min);
        co_await here.close();
        co_await far.close();
    });
}

}  // namespace test_service_call_timeout
