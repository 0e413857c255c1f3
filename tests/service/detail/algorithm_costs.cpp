#include <rdmacoro/service/detail/algorithm_costs.hpp>

#include "support/catch.hpp"

#include <cmath>

namespace test_service_detail_algorithm_costs {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

// One of these costs 1, so that a cost is how often it is paid.
constexpr link_costs messages{{1, 0, 0}, {}, {}, 0};
constexpr link_costs exchanges{{}, {1, 0, 0}, {}, 0};
constexpr link_costs windows{{}, {}, {1, 0, 0}, 0};
constexpr link_costs message_bytes{{0, 0, 1}, {}, {}, 0};
constexpr link_costs exchanged_bytes{{}, {0, 0, 1}, {}, 0};
constexpr link_costs touched{{}, {}, {}, 1};

constexpr costed_call call(double bytes, unsigned ranks, const link_costs& link) {
    return {bytes, ranks, 1, &link, &link};
}
constexpr costed_call of_hosts(double bytes, unsigned ranks, unsigned hosts, const link_costs& within,
                               const link_costs& between) {
    return {bytes, ranks, hosts, &within, &between};
}

}  // namespace

TEST_CASE("steps of trees are as many as the ranks have bits, of rings as many as there are other ranks") {
    STATIC_REQUIRE(cost_of_dissemination(call(0, 8, exchanges)) == 3);
    STATIC_REQUIRE(cost_of_dissemination(call(0, 9, exchanges)) == 4);
    STATIC_REQUIRE(cost_of_tree_barrier(call(0, 9, messages)) == 8);
    STATIC_REQUIRE(cost_of_tree(call(100, 8, messages)) == 3);
    STATIC_REQUIRE(cost_of_tree(call(100, 8, message_bytes)) == 300);
    STATIC_REQUIRE(cost_of_flat_tree(call(100, 8, messages)) == 7);
    STATIC_REQUIRE(cost_of_overlapped(call(100, 8, messages)) == 1);
    STATIC_REQUIRE(cost_of_overlapped(call(100, 8, windows)) == 6);
    STATIC_REQUIRE(cost_of_four_ary(call(100, 16, messages)) == 2);
    STATIC_REQUIRE(cost_of_four_ary(call(100, 17, windows)) == 6);
    STATIC_REQUIRE(cost_of_ring_of_blocks(call(100, 8, exchanged_bytes)) == 700);
    STATIC_REQUIRE(cost_of_log_step(call(100, 8, touched)) == 600);
}

TEST_CASE("steps are counted for any number of ranks") {
    CHECK(cost_of_four_ary(call(100, (1u << 30) + 1, messages)) == 16);
    CHECK(cost_of_four_ary(call(100, ~0u, messages)) == 16);
    CHECK(cost_of_doubling_blocks(call(100, ~0u, exchanges)) == 32);
}

TEST_CASE("halves carry all blocks but one in all, in a step for each bit") {
    STATIC_REQUIRE(cost_of_halves(call(10, 8, message_bytes)) == 70);
    STATIC_REQUIRE(cost_of_halves(call(10, 8, messages)) == 3);
    STATIC_REQUIRE(cost_of_halves(call(10, 5, messages)) == 3);
    STATIC_REQUIRE(cost_of_halves(call(10, 5, message_bytes)) == 40);
    STATIC_REQUIRE(cost_of_scatter_allgather(call(80, 8, message_bytes)) == 70);
    STATIC_REQUIRE(cost_of_scatter_allgather(call(80, 8, exchanged_bytes)) == 70);
    STATIC_REQUIRE(cost_of_doubling_blocks(call(10, 8, exchanged_bytes)) == 70);
    STATIC_REQUIRE(cost_of_doubling_blocks(call(10, 6, exchanged_bytes)) == 50);
    STATIC_REQUIRE(cost_of_doubling_blocks(call(10, 6, exchanges)) == 3);
    STATIC_REQUIRE(cost_of_bruck_allgather(call(10, 6, touched)) == 60);
    STATIC_REQUIRE(cost_of_bruck_alltoall(call(10, 8, exchanged_bytes)) == 120);
    STATIC_REQUIRE(cost_of_doubling_allgather(call(10, 8, exchanged_bytes)) == 70);
    STATIC_REQUIRE(cost_of_doubling_allgather(call(10, 6, exchanged_bytes)) == 45);
    STATIC_REQUIRE(cost_of_doubling_allgather(call(10, 6, message_bytes)) == 70);
    STATIC_REQUIRE(cost_of_double_ring(call(10, 8, exchanged_bytes)) == 40);
    STATIC_REQUIRE(cost_of_double_ring(call(10, 8, windows)) == 6);
}

TEST_CASE("a chain passes pieces on while the next come") {
    constexpr double piece = 64 << 10;
    STATIC_REQUIRE(cost_of_chain(call(piece, 4, messages)) == 3);
    STATIC_REQUIRE(cost_of_chain(call(10 * piece, 4, messages)) == 3);
    STATIC_REQUIRE(cost_of_chain(call(10 * piece, 4, exchanges)) == 9);
    STATIC_REQUIRE(cost_of_chain(call(10 * piece, 2, windows)) == 9);
}

TEST_CASE("reductions carry and combine what their algorithms are known for") {
    STATIC_REQUIRE(cost_of_doubling_allreduce(call(80, 8, exchanged_bytes)) == 240);
    STATIC_REQUIRE(cost_of_doubling_allreduce(call(80, 8, touched)) == 240);
    STATIC_REQUIRE(cost_of_doubling_allreduce(call(80, 8, messages)) == 0);
    STATIC_REQUIRE(cost_of_doubling_allreduce(call(80, 9, messages)) == 2);
    STATIC_REQUIRE(cost_of_doubling_allreduce(call(80, 9, exchanges)) == 3);
    STATIC_REQUIRE(cost_of_rabenseifner(call(80, 8, exchanged_bytes)) == 140);
    STATIC_REQUIRE(cost_of_rabenseifner(call(80, 8, exchanges)) == 6);
    STATIC_REQUIRE(cost_of_rabenseifner(call(80, 8, touched)) == 70);
    STATIC_REQUIRE(cost_of_ring_allreduce(call(80, 8, exchanged_bytes)) == 140);
    STATIC_REQUIRE(cost_of_ring_allreduce(call(80, 8, exchanges)) == 14);
    STATIC_REQUIRE(cost_of_ring_allreduce(call(80, 8, touched)) == 70);
    STATIC_REQUIRE(cost_of_ring_reduce(call(80, 8, exchanged_bytes)) == 70);
    STATIC_REQUIRE(cost_of_halving(call(10, 8, exchanged_bytes)) == 70);
    STATIC_REQUIRE(cost_of_halving(call(10, 8, touched)) == 70);
    STATIC_REQUIRE(cost_of_halving(call(10, 6, messages)) == 2);
    STATIC_REQUIRE(cost_of_halving(call(10, 6, exchanged_bytes)) == 45);
    STATIC_REQUIRE(cost_of_overlapped_scan(call(10, 6, touched)) == 50);
    STATIC_REQUIRE(cost_of_reduce_around(call(10, 8, exchanged_bytes)) == 70);
    STATIC_REQUIRE(cost_of_tree_reduce(call(80, 8, message_bytes)) == 240);
    STATIC_REQUIRE(cost_of_flat_reduce(call(80, 8, touched)) == 560);
}

TEST_CASE("ranks on several hosts pay the way between hosts, but in two levels only between hosts") {
    constexpr link_costs none{};
    STATIC_REQUIRE(cost_of_tree(of_hosts(1, 16, 4, messages, none)) == 0);
    STATIC_REQUIRE(cost_of_tree(of_hosts(1, 16, 4, none, messages)) == 4);
    STATIC_REQUIRE(cost_of_hierarchical_broadcast(of_hosts(1, 16, 4, messages, none)) == 2);
    STATIC_REQUIRE(cost_of_hierarchical_broadcast(of_hosts(1, 16, 4, none, messages)) == 2);
    STATIC_REQUIRE(cost_of_hierarchical_barrier(of_hosts(0, 16, 4, messages, none)) == 4);
    STATIC_REQUIRE(cost_of_hierarchical_barrier(of_hosts(0, 16, 4, none, exchanges)) == 2);
    STATIC_REQUIRE(cost_of_hierarchical_reduce(of_hosts(10, 16, 4, none, message_bytes)) == 20);
    STATIC_REQUIRE(cost_of_hierarchical_allreduce(of_hosts(10, 16, 4, none, exchanges)) == 2);
    STATIC_REQUIRE(cost_of_hierarchical_allreduce(of_hosts(1 << 20, 16, 4, none, exchanges)) == 4);
    STATIC_REQUIRE(cost_of_hierarchical_allreduce(of_hosts(10, 16, 4, messages, none)) == 4);
    // Four hosts of four ranks. Blocks: 3 of a host's and 12 of other hosts come to the root.
    STATIC_REQUIRE(cost_of_hierarchical_blocks(of_hosts(10, 16, 4, message_bytes, none)) == 30);
    STATIC_REQUIRE(cost_of_hierarchical_blocks(of_hosts(10, 16, 4, none, message_bytes)) == 120);
    STATIC_REQUIRE(cost_of_hierarchical_blocks(of_hosts(4096, 16, 4, none, windows)) == 2);
    STATIC_REQUIRE(cost_of_hierarchical_allgather(of_hosts(10, 16, 4, none, exchanged_bytes)) == 120);
    STATIC_REQUIRE(cost_of_hierarchical_allgather(of_hosts(10, 16, 4, message_bytes, none)) == 30 + 2 * 160);
    STATIC_REQUIRE(cost_of_hierarchical_alltoall(of_hosts(10, 16, 4, none, exchanged_bytes)) == 3 * 160);
    STATIC_REQUIRE(cost_of_hierarchical_alltoall(of_hosts(10, 16, 4, windows, none)) == 4);
    STATIC_REQUIRE(cost_of_hierarchical_reduce_scatter(of_hosts(10, 16, 4, message_bytes, none)) == 330);
    STATIC_REQUIRE(cost_of_hierarchical_reduce_scatter(of_hosts(10, 16, 4, none, exchanged_bytes)) == 120);
    STATIC_REQUIRE(cost_of_hierarchical_scan(of_hosts(10, 16, 4, messages, none)) == 2);
    STATIC_REQUIRE(cost_of_hierarchical_scan(of_hosts(10, 16, 4, none, exchanges)) == 2);
}

TEST_CASE("a level of one rank a host, or of one host, costs no messages") {
    STATIC_REQUIRE(cost_of_overlapped(call(100, 1, messages)) == 0);
    STATIC_REQUIRE(cost_of_overlapped(call(100, 1, windows)) == 0);
    STATIC_REQUIRE(cost_of_all_at_a_time(call(100, 1, exchanges)) == 0);
    STATIC_REQUIRE(cost_of_all_at_a_time(call(100, 1, windows)) == 0);
    STATIC_REQUIRE(cost_of_overlapped(call(100, 2, messages)) == 1);
    STATIC_REQUIRE(cost_of_overlapped(call(100, 2, windows)) == 0);
    STATIC_REQUIRE(cost_of_all_at_a_time(call(100, 2, windows)) == 0);
    constexpr link_costs none{};
    for (const unsigned hosts : {1u, 8u}) {
        const link_costs& within = hosts == 1 ? none : windows;
        const link_costs& between = hosts == 1 ? windows : none;
        CHECK(cost_of_hierarchical_blocks(of_hosts(1 << 20, 8, hosts, within, between)) == 0);
        CHECK(cost_of_hierarchical_allgather(of_hosts(1 << 20, 8, hosts, within, between)) == 0);
        CHECK(cost_of_hierarchical_alltoall(of_hosts(1 << 20, 8, hosts, within, between)) == 0);
        CHECK(cost_of_hierarchical_reduce_scatter(of_hosts(1 << 20, 8, hosts, within, between)) == 0);
    }
}

TEST_CASE("two collectives cost what each costs, of its own length") {
    STATIC_REQUIRE(cost_of_two<&cost_of_tree, false, &cost_of_tree, true>(call(10, 4, message_bytes)) == 100);
    STATIC_REQUIRE(cost_of_two<&cost_of_flat_tree, true, &cost_of_tree, false>(call(10, 4, message_bytes)) ==
                   140);
    STATIC_REQUIRE(cost_of_parts<&cost_of_halving, &cost_of_halves>(call(80, 8, message_bytes)) == 70);
    STATIC_REQUIRE(cost_of_parts<&cost_of_halving, &cost_of_halves>(call(80, 8, exchanged_bytes)) == 70);
}

}  // namespace test_service_detail_algorithm_costs
