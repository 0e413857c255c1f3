// Collectives of two and three ranks in every order of the network's events.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/transport/sim/explore.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

task<> take_part(ranks<sim>& all, unsigned rank, const collective_case& of, exploration& x) {
    sim_actor actor(all.network_of(rank));
    co_await actor.step();
    unsigned entered =
        all.size() - 1;  // of a barrier only this rank's own part is looked at: ranks share nothing
    const std::string wrong = co_await perform<std::uint32_t>(all.at(rank), of, std::plus<>{}, entered);
    x.check(wrong.empty(), "rank " + std::to_string(rank) + ": " + wrong);
}

task<> all_take_part(exploration& x, unsigned size, const collective_case& of, const algorithm& by,
                     bool by_rendezvous) {
    sim_options network;
    network.world = &x.world();
    node_options options = ranks<sim>::usual();
    if (by_rendezvous) options.mailbox.limits.eager_limit = options.mailbox.limits.rendezvous_limit = 0;
    ranks<sim> all(size, {}, options, network);
    co_await all.open();
    for (unsigned rank = 0; rank < size; ++rank) all.state(rank).checks = false;
    const auto connect = [](group& g) -> task<> {
        std::vector<std::uint8_t> mine(1), every(g.size());
        co_await g.allgather(mine, every);
        std::vector<std::uint8_t> row(g.size());
        co_await g.alltoall(in_place, row);
    };
    forced_algorithm = find_algorithm(collective_kind::alltoall, "overlapped_flat_tree");
    forced_kind = collective_kind::alltoall;
    for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
    co_await all.each(connect);
    forced_algorithm = &by;
    forced_kind = of.kind;
    for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
    x.begin();
    task_group parts;
    for (unsigned rank = 0; rank < size; ++rank)
        parts.spawn(take_part, std::ref(all), rank, std::cref(of), std::ref(x));
    co_await parts.join();
    x.end();
}

struct explored {
    std::uint64_t executions = 0;
    std::size_t algorithms = 0;
    std::string wrong{};
};
explored explore_kinds(unsigned size, const explore_options& how, bool wants_complete,
                       bool by_rendezvous = false) {
    explored found;
    for (const collective_kind kind :
         {collective_kind::barrier, collective_kind::broadcast, collective_kind::allreduce}) {
        collective_case of;
        of.kind = kind;
        of.elements = kind == collective_kind::barrier ? 0 : size;
        of.root = has_root(kind) ? size - 1 : 0;
        for (const algorithm& by : algorithms_of(kind)) {
            if (!by.admits(of.shape(sizeof(std::uint32_t), size, 1, false))) continue;
            const explore_report report = explore(
                [&](exploration& x) -> task<> { co_await all_take_part(x, size, of, by, by_rendezvous); },
                how);
            found.executions += report.executions;
            ++found.algorithms;
            if (report.failed || (wants_complete && !report.complete))
                found.wrong += of.text(by.name, size) + ": " + report.text() + "\n";
        }
    }
    return found;
}

}  // namespace

TEST_CASE("two ranks end their barriers, broadcasts and sums in every order of events") {
    explore_options how;
    how.most_executions = 20'000;
    const explored found = explore_kinds(2, how, true);
    CHECK(found.wrong == "");
    CHECK(found.algorithms >= 10);
    CHECK(found.executions >= found.algorithms);
}

TEST_CASE("three ranks end their barriers, broadcasts and sums in every order of events") {
    explore_options how;
    how.most_executions = 20'000;
    const explored found = explore_kinds(3, how, true);
    CHECK(found.wrong == "");
    CHECK(found.algorithms >= 10);
    CHECK(found.executions > 50);
}

TEST_CASE("two and three ranks end them in every order of events by rendezvous that there is time for") {
    explore_options how;
    how.most_executions = 300;
    const explored two = explore_kinds(2, how, false, true);
    CHECK(two.wrong == "");
    CHECK(two.executions > 50);
    const explored three = explore_kinds(3, how, false, true);
    CHECK(three.wrong == "");
    CHECK(three.executions > 300);
}

TEST_CASE("they end them in every order of events by rendezvous, and four ranks by short messages",
          "[nightly]") {
    explore_options how;
    how.most_executions = 1'000'000;
    CHECK(explore_kinds(2, how, true, true).wrong == "");
    how.most_executions = 30'000;
    CHECK(explore_kinds(3, how, false, true).wrong == "");
    CHECK(explore_kinds(4, how, false).wrong == "");
}

TEST_CASE("three ranks end them in random orders") {
    explore_options how;
    how.random_executions = 100;
    for (const bool by_rendezvous : {false, true}) {
        const explored found = explore_kinds(3, how, false, by_rendezvous);
        CHECK(found.wrong == "");
        CHECK(found.executions >= 1000);
    }
}
