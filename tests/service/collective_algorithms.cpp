#include <rdmacoro/service/collective_algorithms.hpp>

#include <rdmacoro/service/collectives.hpp>

#include "support/catch.hpp"
#include "support/collective_plans.hpp"
#include "support/sanitizer.hpp"

namespace test_service_collective_algorithms {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace rc = rdmacoro;

namespace {

constexpr collective_shape shape_of_elements(collective_kind kind, std::size_t elements, unsigned ranks) {
    return {.kind = kind, .bytes = elements * 8, .elements = elements, .ranks = ranks};
}

}  // namespace

TEST_CASE("algorithms are restricted to numbers of ranks, lengths and blocks, one around the other") {
    using enum collective_kind;
    constexpr algorithm some =
        rc::powers_of_two<rc::ranks_from<4, rc::ranks_up_to<16, rc::ring<>>>>::of<allreduce>();
    for (unsigned ranks = 2; ranks < 40; ++ranks) {
        INFO(ranks);
        CHECK(some.admits(shape_of_elements(allreduce, 100, ranks)) ==
              (ranks == 4 || ranks == 8 || ranks == 16));
    }
    CHECK(some.name == "ring");
    CHECK(some.from_input);
    CHECK(rc::powers_of_two<rc::ring<>>::of<scan>().name.empty());
    constexpr algorithm lengthy = rc::bytes_a_rank<64, rc::chain<>>::of<broadcast>();
    CHECK(lengthy.admits(shape_of_elements(broadcast, 40, 5)));
    CHECK(!lengthy.admits(shape_of_elements(broadcast, 39, 5)));
    constexpr algorithm alike = rc::even_blocks<rc::spanning_tree<>>::of<gather>();
    collective_shape blocks = shape_of_elements(gather, 0, 5);
    CHECK(alike.admits(blocks));
    blocks.uneven = true;
    CHECK(!alike.admits(blocks));
    CHECK(rc::spanning_tree<>::of<gather>().admits(blocks));
}

namespace {

// Table 5.1 of Taboada's thesis: a list for each of its columns. Messages are short up to 32 KB.
using brief = up_to<(32u << 10)>;
using f_mpj = collectives<barriers<spanning_tree<>>, rc::broadcast<spanning_tree<brief>, scatter_allgather<>>,
                          scatters<spanning_tree<brief>, overlapped_flat_tree<>>,
                          gathers<spanning_tree<brief>, overlapped_flat_tree<>>,
                          rc::allgather<by_root<brief>, powers_of_two<recursive_doubling<>>, ring<>>,
                          rc::alltoall<overlapped_flat_tree<>>, rc::reduce<spanning_tree<brief>, by_parts<>>,
                          rc::allreduce<by_root<brief>, powers_of_two<recursive_doubling<>>, ring<>>,
                          rc::reduce_scatter<by_root<brief>, powers_of_two<recursive_halving<>>, ring<>>,
                          rc::scan<overlapped_flat_tree<>>, rc::exscan<overlapped_flat_tree<>>>;
using mpj_express =
    collectives<barriers<four_ary_tree<>>, rc::broadcast<four_ary_tree<>>, scatters<overlapped_flat_tree<>>,
                gathers<overlapped_flat_tree<>>, rc::allgather<overlapped_flat_tree<>>,
                rc::alltoall<overlapped_flat_tree<>>, rc::reduce<flat_tree<>>,
                rc::allreduce<by_root<any_length, binomial<>, binomial<>>>,
                rc::reduce_scatter<by_root<any_length, flat_tree<>, overlapped_flat_tree<>>>,
                rc::scan<overlapped_flat_tree<>>, rc::exscan<overlapped_flat_tree<>>>;
using mpj_ibis =
    collectives<barriers<flat_tree<>>, rc::broadcast<binomial<>>, scatters<flat_tree<>>, gathers<flat_tree<>>,
                rc::allgather<even_blocks<double_ring<>>, ring<>>, rc::alltoall<overlapped_flat_tree<>>,
                rc::reduce<binomial<>, flat_tree<>>, rc::allreduce<recursive_doubling<>>,
                rc::reduce_scatter<by_root<any_length, binomial<>, flat_tree<>>,
                                   by_root<any_length, flat_tree<>, flat_tree<>>>,
                rc::scan<flat_tree<>>, rc::exscan<flat_tree<>>>;

template <class Op, class T>
task<std::size_t> try_entry(ranks<sim>& all, const collective_case& one, const algorithm& by,
                            collective_findings& found) {
    const bool in_order = !is_commutative<Op, T>;
    if (!by.admits(one.shape(sizeof(T), all.size(), 1, in_order))) co_return 0;
    co_await try_case<T, Op>(all, one, by, nullptr, found);
    co_return 1;
}

/// Each algorithm of a list, whichever of them would be chosen.
template <class List>
task<> try_list(ranks<sim>& all, collective_findings& found) {
    const unsigned size = all.size();
    for (const algorithm& by : List::table) {
        std::size_t ran = 0;
        // Some have short messages alone, some need a part for each rank.
        for (const collective_case& one :
             cases_of(List::kind, some_roots(size), {0, 1, size + 1, 9000}, true)) {
            ran += co_await try_entry<std::plus<>, std::uint32_t>(all, one, by, found);
            if (is_reduction(List::kind)) ran += co_await try_entry<product, matrix>(all, one, by, found);
        }
        INFO(name_of(List::kind) << " by " << by.name << " with " << size);
        const bool can =
            std::has_single_bit(size) || (by.name != "recursive_doubling" && by.name != "recursive_halving");
        CHECK((ran != 0 || !can));
    }
}
template <class... Lists>
task<> try_column(collectives<Lists...>, ranks<sim>& all, collective_findings& found) {
    static_assert(sizeof...(Lists) == collective_kinds);
    (co_await try_list<Lists>(all, found), ...);
}

}  // namespace

TEST_CASE("every algorithm of three MPIs for Java, by the table of the thesis, gives every rank what it must "
          "have") {
    collective_findings found;
    for (const unsigned size : {2u, 3u, 4u, 5u, 7u, 8u, 12u}) {
        if (under_sanitizer && size > 5) continue;
        run_simulated(unordered(size), [&](sim_world& world) -> task<> {
            sim_options network;
            network.world = &world;
            ranks<sim> all(size, {}, ranks<sim>::usual(), network);
            co_await open_unchecked(all);
            co_await try_column(f_mpj(), all, found);
            co_await try_column(mpj_express(), all, found);
            co_await try_column(mpj_ibis(), all, found);
        });
    }
    check_right(found);
}

TEST_CASE("lists by the columns of the thesis' table are shown as it names them") {
    CHECK(explain_collectives(8, 1, &f_mpj::choose) ==
          R"(collectives of 8 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            spanning_tree
  broadcast       0            spanning_tree
                  32776        scatter_allgather
  scatter         0            spanning_tree
                  32776        overlapped_flat_tree
  gather          0            spanning_tree
                  32776        overlapped_flat_tree
  allgather       0            by_root of spanning_tree and spanning_tree
                  32776        recursive_doubling
  alltoall        0            overlapped_flat_tree
  reduce          0            spanning_tree
                  32776        by_parts of ring and spanning_tree
  allreduce       0            by_root of spanning_tree and spanning_tree
                  32776        recursive_doubling
  reduce_scatter  0            by_root of spanning_tree and spanning_tree
                  32776        recursive_halving
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
)");
    CHECK(explain_collectives(7, 1, &f_mpj::choose) ==
          R"(collectives of 7 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            spanning_tree
  broadcast       0            spanning_tree
                  32776        scatter_allgather
  scatter         0            spanning_tree
                  32776        overlapped_flat_tree
  gather          0            spanning_tree
                  32776        overlapped_flat_tree
  allgather       0            by_root of spanning_tree and spanning_tree
                  32776        ring
  alltoall        0            overlapped_flat_tree
  reduce          0            spanning_tree
                  32776        by_parts of ring and spanning_tree
  allreduce       0            by_root of spanning_tree and spanning_tree
                  32776        ring
  reduce_scatter  0            by_root of spanning_tree and spanning_tree
                  32776        ring
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
)");
    CHECK(explain_collectives(8, 1, &mpj_express::choose) ==
          R"(collectives of 8 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            four_ary_tree of overlapped_flat_tree and four_ary_tree
  broadcast       0            four_ary_tree
  scatter         0            overlapped_flat_tree
  gather          0            overlapped_flat_tree
  allgather       0            overlapped_flat_tree
  alltoall        0            overlapped_flat_tree
  reduce          0            flat_tree
  allreduce       0            by_root of binomial and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            overlapped_flat_tree
  exscan          0            overlapped_flat_tree
)");
    CHECK(explain_collectives(8, 1, &mpj_ibis::choose) ==
          R"(collectives of 8 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            flat_tree of flat_tree and flat_tree
  broadcast       0            binomial
  scatter         0            flat_tree
  gather          0            flat_tree
  allgather       0            double_ring
  alltoall        0            overlapped_flat_tree
  reduce          0            binomial
  allreduce       0            recursive_doubling
  reduce_scatter  0            by_root of binomial and flat_tree
  scan            0            flat_tree
  exscan          0            flat_tree
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and flat_tree
  scan            0            flat_tree
  exscan          0            flat_tree
)");
    // With an order, and with blocks of several lengths.
    const auto chosen = [](algorithm_choice by, collective_kind kind, bool in_order, bool uneven) {
        collective_shape shape = shape_of_elements(kind, uneven ? 0 : 100'000, 8);
        shape.in_order = in_order;
        shape.uneven = uneven;
        return *by(shape);
    };
    CHECK(chosen(&mpj_ibis::choose, collective_kind::reduce, true, false).name == "flat_tree");
    CHECK(chosen(&mpj_ibis::choose, collective_kind::reduce_scatter, true, false).steps[0] == "flat_tree");
    CHECK(chosen(&mpj_ibis::choose, collective_kind::reduce_scatter, false, false).steps[0] == "binomial");
    CHECK(chosen(&mpj_ibis::choose, collective_kind::allgather, false, true).name == "ring");
    CHECK(chosen(&mpj_express::choose, collective_kind::allgather, false, true).name ==
          "overlapped_flat_tree");
    CHECK(chosen(&f_mpj::choose, collective_kind::allgather, false, true).name == "by_root");
}

}  // namespace test_service_collective_algorithms
