// Several collectives of one group that a rank cancels at a time: the others are asked once for all of them.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/with_stop.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace test_service_group_canceled_together {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Every rank has a connection to every other one.
task<> connect_all(ranks<sim>& all) {
    const auto body = [](group& g) -> task<> {
        std::vector<std::uint8_t> x(g.size());
        std::vector<std::uint8_t> y(g.size());
        co_await g.alltoall(x, y, rdmacoro::use<overlapped_flat_tree<>>);
    };
    co_await all.each(body);
}
task<> stopped_by(task<> what, local_stop_token token) { co_await with_stop(std::move(what), token); }

}  // namespace

TEST_CASE(
    "thousands of collectives that a rank cancels at a time ask each rank once and name those that had not "
    "entered the first") {
    constexpr unsigned size = 4;
    constexpr unsigned late = 3;
    static constexpr std::size_t many = 5000;
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        local_stop_source stop;
        std::size_t failed = 0;
        std::size_t canceled = 0;
        std::vector<std::vector<std::uint32_t>> rows(size, std::vector<std::uint32_t>(many, 1));
        const auto one = [&](unsigned rank, std::size_t at) -> task<> {
            group& g = all.at(rank);
            const std::span<std::uint32_t> x(&rows[rank][at], 1);
            const local_stop_token token = rank == 0 ? stop.get_token() : local_stop_token();
            const failure end = co_await failing(stopped_by(g.allreduce(in_place, x, std::plus<>{}), token));
            failed += end.code ? 1 : 0;
            canceled += end.code == errc::canceled ? 1 : 0;
        };
        task_group pending;
        for (unsigned rank = 0; rank < late; ++rank) {
            for (std::size_t at = 0; at < many; ++at)
                pending.spawn([&one, rank, at] { return one(rank, at); });
        }
        co_await sleep_for(300ms);
        const std::uint64_t sent = all.sum_of(&metrics::messages_sent);
        const time_point begun = world.time().now();
        stop.request_stop();
        co_await pending.join();
        CHECK(world.time().now() - begun <= 100ms);
        CHECK(failed == late * many);
        CHECK(canceled == many);
        // A question and an answer of each other rank, and from each rank to its neighbours, up to two at each distance, that the group is revoked.
        CHECK(all.sum_of(&metrics::messages_sent) - sent <= 2 * (size - 1) + size * 4);
        for (unsigned rank = 0; rank < size; ++rank) {
            INFO(rank);
            REQUIRE(all.at(rank).failure());
            CHECK(all.at(rank).failure()->absent == std::vector<unsigned>{late});
            CHECK(all.at(rank).failure()->text == "allreduce number 2");
        }
    });
}

TEST_CASE("a rank that enters an earlier collective after it was asked for a later one is not blamed for the "
          "earlier one") {
    sim_world_options far;
    far.costs.latency = 15ms;
    run_simulated(far, [](sim_world& world) -> task<> {
        constexpr unsigned size = 3;
        constexpr unsigned silent = 2;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        all.network_of(silent).set_silent(true);  // the search goes on for the 100 ms
        const group& g = all.at(0);
        local_stop_source first;
        local_stop_source second;
        auto one = start(failing(stopped_by(g.barrier(), first.get_token())));
        auto two = start(failing(stopped_by(g.barrier(), second.get_token())));
        co_await sleep_for(5ms);
        second.request_stop();
        co_await sleep_for(50ms);  // rank 1 has answered
        auto other = start(failing(all.at(1).barrier()));
        co_await sleep_for(5ms);
        first.request_stop();
        const failure of_one = co_await one;
        const failure of_two = co_await two;
        const failure of_other = co_await other;
        CHECK(of_one.code == errc::canceled);
        CHECK(of_two.code == errc::canceled);
        CHECK(of_other.code);
        REQUIRE(all.at(0).failure());
        CHECK(all.at(0).failure()->absent == std::vector<unsigned>{silent});
        CHECK(all.at(0).failure()->text == "barrier number 2; did not answer in time, and may have: rank 2");
    });
}

}  // namespace test_service_group_canceled_together
