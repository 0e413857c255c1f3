// Collectives of two and three ranks in every order of the network's events.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/ranks.hpp"
#include "support/sanitizer.hpp"

#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace test_service_group_explored {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// The failure in an execution, at a moment that is explored, too.
enum class trouble { none, cancel, loss };

/// The program that is run in every order.
struct explored_case {
    unsigned size = 2;
    collective_case of{};
    const algorithm* by = nullptr;
    bool by_rendezvous = false;
    std::vector<unsigned> hosts{};
    trouble with = trouble::none;
};

task<> take_part(ranks<sim>& all, unsigned rank, const explored_case& what, local_stop_source& stop,
                 std::size_t& failed, exploration& x) {
    sim_actor actor(all.network_of(rank));
    co_await actor.step();
    unsigned entered =
        all.size() - 1;  // of a barrier only this rank's own part is looked at: ranks share nothing
    std::string wrong;
    std::error_code code;
    try {
        // The token of rank 0 alone is stopped.
        local_stop_source never;
        wrong = co_await with_stop(perform<std::uint32_t>(all.at(rank), what.of, std::plus<>{}, entered),
                                   (rank == 0 ? stop : never).get_token());
    } catch (const std::system_error& e) {
        code = e.code();
        wrong = e.what();
    }
    if (code) ++failed;
    const bool may_fail = what.with != trouble::none && code;
    x.check(wrong.empty() || may_fail, "rank " + std::to_string(rank) + ": " + wrong);
}

/// Rank 0 loses patience, or the last rank dies.
task<> make_trouble(ranks<sim>& all, trouble with, local_stop_source& stop) {
    const unsigned last = all.size() - 1;
    sim_actor actor(all.network_of(with == trouble::cancel ? 0 : last));
    if (with != trouble::cancel) {
        for (unsigned rank = 0; rank < last; ++rank) actor.touches(all.network_of(rank));
    }
    co_await actor.step();
    if (with == trouble::cancel) {
        stop.request_stop();
    } else {
        for (unsigned rank = 0; rank < last; ++rank) all.network_of(last).drop_links_to(all.network_of(rank));
    }
}

/// `failed`: ranks that ended with an error.
task<> all_take_part(exploration& x, const explored_case& what, std::size_t& failed) {
    sim_options network;
    network.world = &x.world();
    node_options options = ranks<sim>::usual();
    if (what.by_rendezvous) options.mailbox.limits.eager_limit = options.mailbox.limits.rendezvous_limit = 0;
    ranks<sim> all(what.size, what.hosts, options, network);
    co_await all.open();
    for (unsigned rank = 0; rank < what.size; ++rank) all.state(rank).checks = false;
    const auto connect = [](group& g) -> task<> {
        std::vector<std::uint8_t> mine(1), every(g.size());
        co_await g.allgather(mine, every);
        std::vector<std::uint8_t> row(g.size());
        co_await g.alltoall(in_place, row);
    };
    forced_algorithm = find_algorithm(collective_kind::alltoall, "overlapped_flat_tree");
    forced_kind = collective_kind::alltoall;
    for (unsigned rank = 0; rank < what.size; ++rank) all.state(rank).choose_by(&by_force);
    co_await all.each(connect);
    forced_algorithm = what.by;
    forced_kind = what.of.kind;
    for (unsigned rank = 0; rank < what.size; ++rank) all.state(rank).choose_by(&by_force);
    local_stop_source stop;
    x.begin();
    task_group parts;
    for (unsigned rank = 0; rank < what.size; ++rank)
        parts.spawn(take_part, std::ref(all), rank, std::cref(what), std::ref(stop), std::ref(failed),
                    std::ref(x));
    if (what.with != trouble::none) parts.spawn(make_trouble, std::ref(all), what.with, std::ref(stop));
    co_await parts.join();
    x.end();
}

/// Of the orders that there is time for: one of so many.
constexpr unsigned share = under_sanitizer ? 3 : 1;

const std::vector<collective_kind> first_kinds{collective_kind::barrier, collective_kind::broadcast,
                                               collective_kind::allreduce};
const std::vector<collective_kind> other_kinds{collective_kind::scatter,   collective_kind::gather,
                                               collective_kind::allgather, collective_kind::alltoall,
                                               collective_kind::reduce,    collective_kind::reduce_scatter,
                                               collective_kind::scan,      collective_kind::exscan};

struct explored {
    std::uint64_t executions = 0;
    std::size_t algorithms = 0;
    std::size_t complete = 0;  // algorithms of which every order was taken
    std::size_t failed = 0;    // ranks that ended with an error
    std::string wrong{};
};
/// Each algorithm of these kinds; `as` says the rest.
explored explore_kinds(const std::vector<collective_kind>& kinds, explored_case as,
                       const explore_options& how, bool wants_complete) {
    explored found;
    unsigned hosts = 1;
    for (const unsigned host : as.hosts) hosts = std::max(hosts, host + 1);
    for (const collective_kind kind : kinds) {
        as.of = {};
        as.of.kind = kind;
        as.of.elements = kind == collective_kind::barrier ? 0 : as.size;
        as.of.root = has_root(kind) ? as.size - 1 : 0;
        for (const algorithm& by : algorithms_of(kind)) {
            if (!by.admits(as.of.shape(sizeof(std::uint32_t), as.size, hosts, false))) continue;
            if (hosts > 1 && !is_for_hosts(by.name)) continue;
            as.by = &by;
            const explore_report report =
                explore([&](exploration& x) -> task<> { co_await all_take_part(x, as, found.failed); }, how);
            found.executions += report.executions;
            ++found.algorithms;
            found.complete += report.complete ? 1 : 0;
            if (report.failed || (wants_complete && !report.complete))
                found.wrong += as.of.text(by.name, as.size) + ": " + report.text() + "\n";
        }
    }
    return found;
}
explored explore_kinds(const std::vector<collective_kind>& kinds, unsigned size, const explore_options& how,
                       bool wants_complete, bool by_rendezvous = false) {
    explored_case as;
    as.size = size;
    as.by_rendezvous = by_rendezvous;
    return explore_kinds(kinds, as, how, wants_complete);
}

}  // namespace

TEST_CASE("two ranks end their barriers, broadcasts and sums in every order of events") {
    explore_options how;
    how.most_executions = 20'000;
    const explored found = explore_kinds(first_kinds, 2, how, true);
    CHECK(found.wrong == "");
    CHECK(found.algorithms >= 10);
    CHECK(found.executions > 2 * found.algorithms);
}

TEST_CASE("three ranks end their barriers, broadcasts and sums in every order of events") {
    explore_options how;
    how.most_executions = 20'000;
    const explored found = explore_kinds(first_kinds, 3, how, true);
    CHECK(found.wrong == "");
    CHECK(found.algorithms >= 10);
    CHECK(found.executions > 50);
}

TEST_CASE("two ranks end all others in every order of events, and three in those that there is time for") {
    explore_options how;
    how.most_executions = 20'000;
    const explored two = explore_kinds(other_kinds, 2, how, true);
    CHECK(two.wrong == "");
    CHECK(two.algorithms >= 25);
    how.most_executions = 1000;
    const explored three = explore_kinds(other_kinds, 3, how, false);
    CHECK(three.wrong == "");
    CHECK(three.algorithms >= 25);
    CHECK(three.complete > 0);
    CHECK(three.executions > 500);
}

TEST_CASE("three ranks on two hosts end all by two levels in every order of events that there is time for") {
    explore_options how;
    how.most_executions = 200;
    explored_case as;
    as.size = 3;
    as.hosts = {0, 0, 1};
    const explored first = explore_kinds(first_kinds, as, how, false);
    CHECK(first.wrong == "");
    const explored others = explore_kinds(other_kinds, as, how, false);
    CHECK(others.wrong == "");
    CHECK(first.algorithms + others.algorithms >= 12);
    CHECK(first.complete + others.complete > 0);
}

TEST_CASE("two and three ranks end all of them when one loses patience, or dies, at any moment that there is "
          "time for") {
    explore_options how;
    how.most_executions = 40 / share;
    for (const trouble with : {trouble::cancel, trouble::loss}) {
        for (const unsigned size : {2u, 3u}) {
            explored_case as;
            as.size = size;
            as.with = with;
            INFO(size << " ranks, trouble " << static_cast<int>(with));
            const explored first = explore_kinds(first_kinds, as, how, false);
            const explored others = explore_kinds(other_kinds, as, how, false);
            CHECK(first.wrong == "");
            CHECK(others.wrong == "");
            CHECK(first.executions + others.executions > 500 / share);
            // It was felt, by many.
            CHECK(first.failed + others.failed > 200 / share);
        }
    }
}

TEST_CASE("the same by rendezvous, and on two hosts, at some of these moments") {
    explore_options how;
    how.most_executions = 40 / share;
    for (const trouble with : {trouble::cancel, trouble::loss}) {
        for (const bool by_rendezvous : {false, true}) {
            for (const std::vector<unsigned>& hosts : {std::vector<unsigned>{}, {0, 0, 1}}) {
                if (!by_rendezvous && hosts.empty()) continue;  // above
                explored_case as;
                as.size = 3;
                as.with = with;
                as.by_rendezvous = by_rendezvous;
                as.hosts = hosts;
                INFO("trouble " << static_cast<int>(with) << ", rendezvous " << by_rendezvous << ", "
                                << (hosts.empty() ? 1 : 2) << " hosts");
                const explored first = explore_kinds(first_kinds, as, how, false);
                const explored others = explore_kinds(other_kinds, as, how, false);
                CHECK(first.wrong == "");
                CHECK(others.wrong == "");
                CHECK(first.executions + others.executions > (hosts.empty() ? 150 : 30) / share);
                CHECK(first.failed + others.failed > (hosts.empty() ? 200 : 50) / share);
            }
        }
    }
}

TEST_CASE("two and three ranks end them in every order of events by rendezvous that there is time for") {
    explore_options how;
    how.most_executions = 300 / share;
    const explored two = explore_kinds(first_kinds, 2, how, false, true);
    CHECK(two.wrong == "");
    CHECK(two.executions > 50);
    const explored three = explore_kinds(first_kinds, 3, how, false, true);
    CHECK(three.wrong == "");
    CHECK(three.executions > 300 / share);
}

TEST_CASE("they end them in every order of events by rendezvous, and four ranks by short messages",
          "[nightly]") {
    explore_options how;
    how.most_executions = 1'000'000;
    CHECK(explore_kinds(first_kinds, 2, how, true, true).wrong == "");
    how.most_executions = 30'000;
    for (const auto& kinds : {first_kinds, other_kinds}) {
        CHECK(explore_kinds(kinds, 3, how, false, true).wrong == "");
        CHECK(explore_kinds(kinds, 4, how, false).wrong == "");
        explored_case as;
        as.size = 3;
        for (as.with = trouble::cancel;; as.with = trouble::loss) {
            CHECK(explore_kinds(kinds, as, how, false).wrong == "");
            if (as.with == trouble::loss) break;
        }
    }
}

TEST_CASE("three ranks end them in random orders") {
    explore_options how;
    how.random_executions = 100 / share;
    for (const bool by_rendezvous : {false, true}) {
        const explored found = explore_kinds(first_kinds, 3, how, false, by_rendezvous);
        CHECK(found.wrong == "");
        CHECK(found.executions >= 1000 / share);
    }
}

}  // namespace test_service_group_explored
