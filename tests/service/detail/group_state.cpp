#include <rdmacoro/service/detail/group_state.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/start.hpp>

#include <algorithm>
#include <new>
#include <vector>

namespace test_service_detail_group_state {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
namespace rc = rdmacoro;

namespace {

using state_ptr = detail::counted_ptr<detail::group_state>;
state_ptr make(ranks<sim>& all, unsigned rank, std::vector<unsigned> members, std::uint64_t context) {
    return state_ptr(new detail::group_state(detail::counted_ptr<detail::rank_links>(&all.links(rank)),
                                             std::move(members), context, &default_collectives::choose));
}

}  // namespace

TEST_CASE("a group knows its members by both ranks, and the hosts that they are on") {
    run_nodes([]() -> task<> {
        ranks<sim> all(5, {0, 1, 1, 0, 2});
        co_await all.open();
        const state_ptr some = make(all, 3, {4, 3, 1, 2}, 9);
        CHECK(some->size() == 4);
        CHECK(some->rank() == 1);
        CHECK(some->rank_of(4) == 0);
        CHECK(some->rank_of(2) == 3);
        CHECK(some->rank_of(0) == 4);  // no member
        CHECK(some->hosts() == 3);
        CHECK(some->host_of(0) == 2);
        CHECK(some->is_first_on_host(2));
        CHECK(!some->is_first_on_host(3));
        // Of rank 3 of the job, and of ranks 4, 3 and 1.
        CHECK(std::ranges::equal(some->ranks_here(), std::vector<unsigned>{1}));
        CHECK(std::ranges::equal(some->first_ranks(), std::vector<unsigned>{0, 1, 2}));
        const state_ptr other = make(all, 2, {4, 3, 1, 2}, 9);
        CHECK(std::ranges::equal(other->ranks_here(), std::vector<unsigned>{2, 3}));
        CHECK(std::ranges::equal(other->first_ranks(), some->first_ranks()));
        CHECK(some->context() == 9);
        CHECK(all.state(0).hosts() == 3);
    });
}

TEST_CASE("two groups of one context at one rank are refused, and so is a context above the limit") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        std::error_code code;
        try {
            make(all, 0, {0, 1}, 1);
        } catch (const std::system_error& e) {
            code = e.code();
        }
        CHECK(code == errc::invalid_argument);
        code = {};
        try {
            make(all, 0, {0, 1}, std::uint64_t{1} << detail::context_bits);
        } catch (const std::system_error& e) {
            code = e.code();
        }
        CHECK(code == errc::no_resources);
        // The group that was there is still found by its words.
        const auto body = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(body);
    });
}

TEST_CASE("words that name ranks that the group has not change nothing") {
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        const state_ptr pair = make(all, 0, {0, 1}, 9);
        for (const auto kind :
             {detail::word_kind::revoke, detail::word_kind::shrink_ready, detail::word_kind::shrink_done}) {
            detail::group_word word;
            word.kind = static_cast<std::uint8_t>(kind);
            word.context = 9;
            word.number = 12;
            word.lost = {3};
            pair->word_arrived(1, word);
            word.lost.clear();
            word.by = 2;
            pair->word_arrived(1, word);
            CHECK(!pair->failure());
        }
        co_return;
    });
}

TEST_CASE("the numbers of collectives begin anew after the last one, and ranks before and behind it are told "
          "apart") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const auto connect = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(connect);
        // As if this rank were three collectives before the end of the numbers, and the others, at 1, behind it.
        const auto behind = co_await detail::group_state::find_absent(&all.state(0), 0xffff'fffeu);
        CHECK(behind.ranks.empty());
        CHECK(behind.silent.empty());
        const auto before = co_await detail::group_state::find_absent(&all.state(0), 5);
        CHECK(before.ranks == std::vector<unsigned>{1, 2});
        CHECK(before.silent.empty());  // they have answered
    });
}

TEST_CASE("a rank that the others left out, and one whose shrink has no number, expects no group any more") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const auto connect = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(connect);
        detail::group_word done;
        done.kind = static_cast<std::uint8_t>(detail::word_kind::shrink_done);
        done.context = 1;
        done.by = 1;
        done.number = 0;
        all.state(0).word_arrived(1, done);
        CHECK((co_await failing(
                   [](const group& g) -> task<> { static_cast<void>(co_await g.shrink()); }(all.at(0))))
                  .code == errc::no_resources);
        CHECK(all.links(0).is_stale(9));
        done.number = 5;
        done.lost = {2};
        all.state(2).word_arrived(1, done);
        CHECK((co_await failing(
                   [](const group& g) -> task<> { static_cast<void>(co_await g.shrink()); }(all.at(2))))
                  .code == group_errc::not_member);
        CHECK(all.links(2).is_stale(9));
    });
}

TEST_CASE("a rank that stopped in good order is gone for those that shrink, and revokes nothing before") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        all.state(0).rank_ended(2, make_error_code(errc::closed));
        CHECK(!all.at(0).failure());
        all.state(0).rank_ended(1, make_error_code(errc::peer_lost));
        REQUIRE(all.at(0).failure());
        CHECK(all.at(0).failure()->lost == std::vector<unsigned>{1});
        group left = co_await all.at(0).shrink();
        CHECK(left.size() == 1);
        co_await left.barrier();
    });
}

TEST_CASE("a rank that has left is not asked which collective it has entered, and not blamed for it") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const auto connect = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(connect);
        co_await all.end(1);
        co_await until([&] { return all.links(2).peer(1).left; });
        const auto begun = detail::running_scheduler().now();
        const auto absent = co_await detail::group_state::find_absent(&all.state(2), 2);
        CHECK(absent.ranks == std::vector<unsigned>{0});
        CHECK(detail::running_scheduler().now() - begun < 100ms);
    });
}

TEST_CASE("ranks that have no connection yet, over a network that takes its time, are not blamed") {
    constexpr unsigned size = 8;
    constexpr unsigned late = 7;
    sim_world_options slow;
    slow.costs.latency = 60ms;
    run_simulated(slow, [](sim_world& world) -> task<> {
        sim_options network;
        network.world = &world;
        ranks<sim> all(size, {}, ranks<sim>::usual(), network);
        co_await all.open();
        const auto body = [](group& g) -> task<> {
            if (g.rank() == late) co_return;
            const duration limit = g.rank() == 0 ? 2s : 60s;
            CHECK(!co_await as_result(timeout(g.barrier(rc::use<rc::spanning_tree<>>), limit)));
        };
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).checks = false;
        co_await all.each(body);
        for (unsigned rank = 0; rank < size; ++rank) {
            CAPTURE(rank);
            for (int n = 0; n < 100 && !all.at(rank).failure(); ++n) co_await sleep_for(10ms);
            REQUIRE(all.at(rank).failure());
            CHECK(all.at(rank).failure()->by == 0);
            CHECK(all.at(rank).failure()->absent == std::vector<unsigned>{late});
        }
    });
}

TEST_CASE("a decision that memory was short for is told once there is some") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    unsigned untold = 0;
    for (std::size_t number = 1; number < 40; ++number) {
        for (const bool lets_go : {false, true}) {
            CAPTURE(number, lets_go);
            run_nodes([&]() -> task<> {
                ranks<sim> all(4);
                co_await all.open();
                for (unsigned rank = 0; rank < 4; ++rank) all.state(rank).checks = false;
                const auto connect = [](group& g) -> task<> {
                    std::vector<int> x(4);
                    co_await g.alltoall(in_place, x);
                };
                co_await all.each(connect);
                auto second = start(detail::group_state::agree(&all.state(2)));
                auto third = start(detail::group_state::agree(&all.state(3)));
                for (int turn = 0; turn < 1000; ++turn) co_await yield();
                // Rank 1, which both have told that they are ready, hears from rank 0 what that has decided.
                all.state(2).rank_ended(0, make_error_code(errc::closed));
                all.state(3).rank_ended(0, make_error_code(errc::closed));
                for (int turn = 0; turn < 1000; ++turn) co_await yield();
                detail::group_word done;
                done.kind = static_cast<std::uint8_t>(detail::word_kind::shrink_done);
                done.context = 1;
                done.number = 77;
                done.lost = {0};
                fail_allocation(number);
                bool heard = true;
                try {
                    all.state(1).word_arrived(0, done);
                } catch (const std::bad_alloc&) {
                    heard = false;
                }
                const bool has_failed = !allocation_is_to_fail();
                fail_allocation(0);
                if (!heard) all.state(1).word_arrived(0, done);
                for (int turn = 0; turn < 1000; ++turn) co_await yield();
                if (has_failed && heard && !(second.done() && third.done())) ++untold;
                if (lets_go) {
                    all.leave(1);
                } else {
                    all.state(1).tell_again();
                }
                const auto at_second = co_await timeout(second, 5s);
                const auto at_third = co_await timeout(third, 5s);
                const std::vector<unsigned> left{1, 2, 3};
                CHECK(at_second.left == left);
                CHECK(at_third.left == left);
            });
        }
    }
    CHECK(untold > 0);
}

TEST_CASE("a group ends where there is no memory for the words, and the others are told once there is") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        const auto connect = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(connect);
        {
            const failing_allocations none(1, std::size_t{1} << 40);
            all.state(0).transfer_failed(2, make_error_code(errc::peer_lost));
            all.state(0).rank_ended(3, make_error_code(errc::peer_lost));
        }
        REQUIRE(all.at(0).failure());
        CHECK(all.at(0).failure()->why == errc::peer_lost);
        CHECK(all.at(0).failure()->by == 0);
        for (int turn = 0; turn < 1000; ++turn) co_await yield();
        CHECK(!all.at(1).failure());
        all.state(0).tell_again();
        co_await until([&] { return all.at(1).failure().has_value(); });
        CHECK(all.at(1).failure()->by == 0);
    });
}

}  // namespace test_service_detail_group_state
