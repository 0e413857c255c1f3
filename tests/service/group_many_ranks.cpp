// Collectives of many ranks: each algorithm, in simulated networks.

#include <rdmacoro/service/group.hpp>

#include "support/collective_plans.hpp"
#include "support/sanitizer.hpp"

namespace test_service_group_many_ranks {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::vector<unsigned> by_sixteen(unsigned size) {
    std::vector<unsigned> hosts;
    for (unsigned rank = 0; rank < size; ++rank) hosts.push_back(rank / 16);
    return hosts;
}

}  // namespace

TEST_CASE("every algorithm gives every rank what it must have, for many ranks") {
    const std::vector<unsigned> sizes = under_sanitizer ? std::vector{33u} : std::vector{33u, 64u, 100u};
    collective_findings found;
    collective_findings by_hosts;
    for (const unsigned size : sizes) {
        collective_plan how;
        how.roots = {size - 1};
        how.lengths = {size + 1};
        how.variants = size == 33;
        try_ranks(size, how, size, ranks<sim>::usual(), found);
        how.hosts = (size + 15) / 16;
        try_ranks(size, how, size, ranks<sim>::usual(), by_hosts, by_sixteen(size));
    }
    check_right(found);
    check_right(by_hosts);
    for (const unsigned size : sizes) check_complete(found, size, size, false);
    check_complete(by_hosts, sizes.back(), sizes.back(), true);
}

TEST_CASE("every algorithm for 1 to 33, 64, 100 and 128 ranks, with all roots and lengths", "[nightly]") {
    collective_findings found;
    const auto attempt = [&](unsigned size) {
        collective_plan how;
        for (unsigned at = 0; at < size; ++at) {
            if (size <= 33 || at % 21 == 0 || at == size - 1) how.roots.push_back(at);
        }
        how.lengths = short_lengths(size);
        try_ranks(size, how, size, ranks<sim>::usual(), found);
        try_ranks(size, how, 1000 + size, by_rendezvous(), found);
        how.roots = {size / 2};
        how.lengths = {(std::size_t{64} << 10) / sizeof(std::uint32_t)};
        how.variants = size <= 8;
        try_ranks(size, how, 2000 + size, ranks<sim>::usual(), found);
        if (size > 16) {
            how.hosts = (size + 15) / 16;
            how.roots = some_roots(size);
            how.lengths = short_lengths(size);
            how.variants = true;
            try_ranks(size, how, 3000 + size, ranks<sim>::usual(), found, by_sixteen(size));
        }
    };
    for (unsigned size = 1; size <= 33; ++size) attempt(size);
    for (const unsigned size : {64u, 100u, 128u}) attempt(size);
    check_right(found);
    check_complete(found, 2, 33, false);
    for (const unsigned size : {64u, 100u, 128u}) check_complete(found, size, size, false);
    check_complete(found, 64, 64, true);
}

TEST_CASE("a thousand ranks, each kind once") {
    constexpr unsigned size = 1000;
    // By algorithms that do not connect each rank with each other one.
    struct one {
        collective_kind kind;
        const char* by;
        std::size_t elements;
    };
    using enum collective_kind;
    const one each[] = {
        {barrier, "dissemination", 0},
        {broadcast, "binomial", 3},
        {scatter, "spanning_tree", 3},
        {gather, "spanning_tree", 3},
        {allgather, "bruck", 3},
        {alltoall, "bruck", 1},
        {reduce, "spanning_tree", 3},
        {allreduce, "recursive_doubling", 3},
        {allreduce, "rabenseifner", size},
        {reduce_scatter, "recursive_halving", 2},
        {scan, "log_step", 3},
        {exscan, "log_step", 3},
    };
    collective_findings found;
    run_simulated(unordered(1), [&](sim_world& world) -> task<> {
        sim_options network;
        network.world = &world;
        ranks<sim> all(size, {}, ranks<sim>::usual(), network);
        co_await open_unchecked(all);
        for (const one& what : each) {
            collective_case of;
            of.kind = what.kind;
            of.elements = what.elements;
            of.root = has_root(of.kind) ? size / 3 : 0;
            const algorithm* const by = find_algorithm(what.kind, what.by);
            REQUIRE(by != nullptr);
            REQUIRE(by->admits(of.shape(sizeof(std::uint32_t), size, 1, false)));
            co_await try_case<std::uint32_t, std::plus<>>(all, of, *by, nullptr, found);
        }
    });
    check_right(found);
    CHECK(found.done == std::size(each));
    for (const one& what : each) {
        INFO(name_of(what.kind) << " by " << what.by);
        const std::pair<std::string, std::string> key(name_of(what.kind), what.by);
        CHECK(found.seen[key] == std::set<unsigned>{size});
    }
}

}  // namespace test_service_group_many_ranks
