#include <rdmacoro/service/collectives_by_costs.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <cmath>
#include <string>
#include <vector>

namespace test_service_collectives_by_costs {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

constexpr collective_shape shape(collective_kind kind, std::size_t bytes, unsigned ranks,
                                 unsigned hosts = 1) {
    return {.kind = kind, .bytes = bytes, .elements = bytes / 8, .ranks = ranks, .hosts = hosts};
}

/// Each message costs the same, whatever its length.
struct only_starts {
    static constexpr link_costs within{{1000, 0, 0}, {1000, 0, 0}, {1000, 0, 0}, 0};
    static constexpr link_costs between = within;
};
/// Only bytes cost.
struct only_bytes {
    static constexpr link_costs within{{0.001, 0, 1}, {0.001, 0, 1}, {0.001, 0, 1}, 0.1};
    static constexpr link_costs between = within;
};
/// A send and a receive at a time take ten times as long as one of them: exchanges are to be avoided.
struct dear_exchanges {
    static constexpr link_costs within{{1000, 0, 1}, {10'000, 0, 10}, {1000, 0, 1}, 0.1};
    static constexpr link_costs between = within;
};
/// Several messages at a time cost almost nothing.
struct cheap_windows {
    static constexpr link_costs within{{10'000, 0, 0.1}, {30'000, 0, 0.3}, {10, 0, 0.001}, 0.01};
    static constexpr link_costs between = within;
};
/// The network is a hundred times as slow as the host's memory.
struct slow_network {
    static constexpr link_costs within{{100, 0, 0.1}, {100, 0, 0.1}, {10, 0, 0.1}, 0.1};
    static constexpr link_costs between{{10'000, 0, 10}, {10'000, 0, 10}, {1000, 0, 10}, 0.1};
};

/// Only a window of messages is dear.
struct even_links {
    static constexpr link_costs within{{1000, 0, 1}, {1000, 0, 1}, {100'000, 0, 1}, 0};
    static constexpr link_costs between = within;
};
/// Exchanges start slowly, and carry well.
struct slow_starts {
    static constexpr link_costs within{{1000, 0, 1}, {10'000, 0, 1}, {100'000, 0, 1}, 0};
    static constexpr link_costs between = within;
};

template <class Costs>
constexpr std::string_view chosen(collective_kind kind, std::size_t bytes, unsigned ranks,
                                  unsigned hosts = 1) {
    return collectives_by_costs<Costs>::choose(shape(kind, bytes, ranks, hosts))->name;
}
template <class Costs>
cheapest best_of(collective_kind kind, std::size_t bytes, unsigned ranks, unsigned hosts = 1) {
    return cheapest_algorithm(shape(kind, bytes, ranks, hosts), Costs::within, Costs::between);
}

}  // namespace

TEST_CASE("the choice by costs is known to the compiler, and follows what a link is good at") {
    using enum collective_kind;
    STATIC_REQUIRE(chosen<only_starts>(allreduce, 1 << 20, 16) == "recursive_doubling");
    STATIC_REQUIRE(chosen<only_bytes>(allreduce, 1 << 20, 16) == "rabenseifner");
    STATIC_REQUIRE(chosen<only_bytes>(allreduce, 1 << 20, 15) == "ring");
    STATIC_REQUIRE(chosen<only_starts>(allgather, 1 << 20, 16) == "recursive_doubling");
    STATIC_REQUIRE(chosen<only_starts>(allgather, 1 << 20, 15) == "bruck");
    STATIC_REQUIRE(chosen<only_starts>(alltoall, 1 << 10, 16) == "bruck");
    STATIC_REQUIRE(chosen<only_bytes>(alltoall, 1 << 10, 16) == "pairwise");
    STATIC_REQUIRE(chosen<cheap_windows>(broadcast, 64, 16) == "overlapped_flat_tree");
    STATIC_REQUIRE(chosen<only_starts>(broadcast, 64, 16) == "binomial");
    STATIC_REQUIRE(chosen<only_starts>(gather, 64, 16) == "spanning_tree");
    STATIC_REQUIRE(chosen<cheap_windows>(gather, 64, 16) == "overlapped_flat_tree");
    STATIC_REQUIRE(chosen<only_starts>(scan, 64, 16) == "log_step");
    STATIC_REQUIRE(chosen<only_starts>(barrier, 0, 16) == "dissemination");
    STATIC_REQUIRE(chosen<slow_network>(barrier, 0, 16, 2) == "hierarchical");
    STATIC_REQUIRE(chosen<slow_network>(allreduce, 64, 16, 4) == "hierarchical");
    STATIC_REQUIRE(chosen<slow_network>(allreduce, 64, 16) == "recursive_doubling");
}

TEST_CASE("two other collectives take the place of one exactly where their costs together are less") {
    using enum collective_kind;
    const cheapest both = best_of<dear_exchanges>(allreduce, 1024, 8);
    REQUIRE(both.found->is_substitute());
    CHECK(both.found->first.kind == reduce);
    CHECK(both.found->second.kind == broadcast);
    CHECK(both.found->how.name == "by_root");
    CHECK(both.direct->how.name == "recursive_doubling");
    CHECK(both.ns < both.direct_ns);
    CHECK(std::abs(both.ns - (2 * 3 * 2024 + 3 * 0.1 * 1024)) < 0.01);
    CHECK(std::abs(both.direct_ns - 3 * (10'000 + 10 * 1024 + 0.1 * 1024)) < 0.01);
    CHECK(best_of<dear_exchanges>(allgather, 64, 8).found->first.kind == gather);
    CHECK(best_of<dear_exchanges>(allgather, 64, 8).found->second.kind == broadcast);
    CHECK(best_of<dear_exchanges>(reduce_scatter, 64, 8).found->first.kind == reduce);
    CHECK(best_of<dear_exchanges>(reduce_scatter, 64, 8).found->second.kind == scatter);
    const cheapest cut = best_of<only_bytes>(broadcast, 40'000, 32);
    REQUIRE(cut.found->is_substitute());
    CHECK(cut.found->how.name == "by_parts");
    CHECK(cut.found->first.kind == scatter);
    CHECK(cut.found->second.kind == allgather);
    // Nothing is substituted where steps of either way cost the same.
    for (const collective_kind kind : {allgather, allreduce, reduce_scatter}) {
        CHECK(!best_of<only_starts>(kind, 4096, 8).found->is_substitute());
        CHECK(!best_of<only_bytes>(kind, 4096, 8).found->is_substitute());
    }
    CHECK(!best_of<only_starts>(broadcast, 4096, 8).found->is_substitute());
}

TEST_CASE("a substitution for short messages, and one for long ones, end where the costs cross") {
    // T of a broadcast: binomial 3 (s + n b), scatter and allgather 6 s + (7/8 + 7/8) n b: equal at n b = 2.4 s.
    CHECK(chosen<even_links>(collective_kind::broadcast, 2392, 8) == "binomial");
    CHECK(chosen<even_links>(collective_kind::broadcast, 2408, 8) == "by_parts");
    // Reduce and broadcast, 6 (1000 + n), against 3 (10'000 + n).
    CHECK(best_of<slow_starts>(collective_kind::allreduce, 7992, 8).found->is_substitute());
    CHECK(!best_of<slow_starts>(collective_kind::allreduce, 8008, 8).found->is_substitute());
}

TEST_CASE("no algorithm that admits a call costs less than the one chosen, and every even call has one") {
    for (std::size_t kind = 0; kind < collective_kinds; ++kind) {
        for (const unsigned ranks : {2u, 3u, 8u, 13u, 100u, 4096u}) {
            for (const unsigned hosts : {1u, 2u}) {
                for (const unsigned flags : {0u, 1u, 2u, 3u}) {
                    for (std::size_t bytes = 0; bytes < (1u << 26); bytes = 8 * bytes + 8) {
                        collective_shape of = shape(static_cast<collective_kind>(kind), bytes, ranks, hosts);
                        of.in_order = (flags & 1) != 0;
                        of.reproducible = (flags & 2) != 0;
                        const cheapest best = cheapest_algorithm(of, shm_costs, tcp_costs);
                        INFO(name_of(of.kind) << ' ' << ranks << ' ' << bytes << ' ' << flags);
                        REQUIRE(best.found != nullptr);
                        REQUIRE(best.found->how.admits(of));
                        REQUIRE(best.ns > 0);
                        for (const costed_algorithm& one : costed_algorithms(of.kind))
                            if (one.how.admits(of))
                                REQUIRE(cost_of(one, of, shm_costs, tcp_costs) >= best.ns);
                        of.uneven = true;
                        REQUIRE(cheapest_algorithm(of, shm_costs, tcp_costs).found == nullptr);
                    }
                }
            }
        }
    }
    CHECK(cost_of(costed_algorithms(collective_kind::broadcast)[1], shape(collective_kind::broadcast, 8, 1),
                  shm_costs, tcp_costs) == 0);
}

TEST_CASE("every algorithm whose cost is known, substitutes included, gives every rank what it must have") {
    run_nodes([]() -> task<> {
        for (const unsigned size : {2u, 3u, 4u, 8u}) {
            ranks<sim> all(size);
            co_await all.open();
            for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
            for (std::size_t which = 0; which < collective_kinds; ++which) {
                collective_case of;
                of.kind = static_cast<collective_kind>(which);
                of.root = has_root(of.kind) ? size - 1 : 0;
                for (const costed_algorithm& one : costed_algorithms(of.kind)) {
                    if (one.how.name == "hierarchical") continue;
                    std::size_t ran = 0;
                    for (const std::size_t elements : {0u, 1u, 8u, 3000u}) {
                        of.elements = elements;
                        forced_algorithm = &one.how;
                        forced_kind = of.kind;
                        forced_runs = 0;
                        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
                        unsigned entered = 0;
                        std::string wrong;
                        const auto body = [&](group& g) -> task<> {
                            const std::string found =
                                co_await perform<std::uint32_t>(g, of, std::plus<>{}, entered);
                            wrong += found;
                        };
                        co_await all.each(body);
                        ran += forced_runs;
                        if (!wrong.empty()) FAIL(of.text(one.how.name, size) + ": " + wrong);
                    }
                    INFO(of.text(one.how.name, size));
                    if (size == 8 || size == 4 || size == 2) CHECK(ran > 0);
                }
            }
            forced_algorithm = nullptr;
        }
    });
}

TEST_CASE("the tables of ranks on one host and on four by the costs that come with the toolkit") {
    CHECK(explain_collectives(8, 1, &collectives_by_costs<usual_costs>::choose) ==
          R"(collectives of 8 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  1360         by_parts of spanning_tree and recursive_doubling
                  542488       chain
  scatter         0            spanning_tree
                  48           overlapped_flat_tree
  gather          0            spanning_tree
                  48           overlapped_flat_tree
  allgather       0            recursive_doubling
  alltoall        0            bruck
                  512          pairwise
  reduce          0            spanning_tree
                  1264         by_parts of recursive_halving and spanning_tree
                  84840        ring
  allreduce       0            recursive_doubling
                  1880         rabenseifner
  reduce_scatter  0            recursive_halving
  scan            0            overlapped_flat_tree
                  32           log_step
  exscan          0            overlapped_flat_tree
                  32           log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
)");
    CHECK(explain_collectives(16, 4, &collectives_by_costs<usual_costs>::choose) ==
          R"(collectives of 16 ranks on 4 hosts, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            hierarchical
  broadcast       0            hierarchical
                  99776        by_parts of spanning_tree and recursive_doubling
  scatter         0            hierarchical
                  70552        overlapped_flat_tree
  gather          0            hierarchical
                  70552        overlapped_flat_tree
  allgather       0            hierarchical
                  1168         recursive_doubling
  alltoall        0            hierarchical
                  112          bruck
                  432          overlapped_flat_tree
                  173328       pairwise
  reduce          0            hierarchical
                  89200        by_parts of recursive_halving and spanning_tree
                  29495744     ring
  allreduce       0            hierarchical
                  16384        recursive_doubling
                  27184        rabenseifner
  reduce_scatter  0            hierarchical
                  1120         recursive_halving
  scan            0            hierarchical
                  29560        log_step
  exscan          0            hierarchical
                  29560        log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
)");
}

TEST_CASE("a group says what carries its collectives where ranks of its hosts are numbered in turn") {
    run_nodes([]() -> task<> {
        for (const bool in_turn : {false, true}) {
            std::vector<unsigned> hosts;
            for (unsigned rank = 0; rank < 16; ++rank) hosts.push_back(in_turn ? rank % 4 : rank / 4);
            ranks<sim> all(16, hosts);
            co_await all.open();
            all.at(0).use<collectives_by_costs<usual_costs>>();
            const std::string text = all.at(0).explain();
            CAPTURE(text);
            CHECK((text.find("  scan            0            hierarchical") == std::string::npos) == in_turn);
            CHECK((text.find("  exscan          0            hierarchical") == std::string::npos) == in_turn);
            CHECK((text.find("4 hosts, numbered in turn") != std::string::npos) == in_turn);
        }
    });
}

TEST_CASE("a group chooses by costs, and by the default where they say nothing") {
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        for (unsigned rank = 0; rank < 4; ++rank) all.at(rank).use<collectives_by_costs<dear_exchanges>>();
        CHECK(all.at(0).explain().find("allreduce       0            by_root") != std::string::npos);
        const auto body = [](group& g) -> task<> {
            std::vector<int> x(50, 1), few(g.rank(), 1), got(6);
            co_await g.allreduce(in_place, x, std::plus<>{});
            CHECK(x == std::vector<int>(50, 4));
            const std::vector<std::size_t> counts{0, 1, 2, 3};
            co_await g.allgatherv(few, got, counts);
            CHECK(got == std::vector<int>(6, 1));
        };
        co_await all.each(body);
    });
}

}  // namespace test_service_collectives_by_costs
