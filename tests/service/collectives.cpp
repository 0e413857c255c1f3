#include <rdmacoro/service/collectives.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <string>
#include <vector>

namespace test_service_collectives {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace rc = rdmacoro;

namespace {

// clang-format off: as in the document
using mine = rc::collectives<rc::allreduce<rc::recursive_doubling<rc::up_to<4096>>, rc::rabenseifner<>>,
                             rc::broadcast<rc::binomial<rc::up_to<32768>>, rc::scatter_allgather<>>>;
// clang-format on

constexpr collective_shape shape(collective_kind kind, std::size_t bytes, unsigned ranks,
                                 unsigned hosts = 1) {
    return {.kind = kind, .bytes = bytes, .elements = bytes / 8, .ranks = ranks, .hosts = hosts};
}
constexpr std::string_view chosen(algorithm_choice by, const collective_shape& of) {
    const algorithm* const found = by(of);
    return found != nullptr ? found->name : std::string_view();
}

template <class Change>
std::string_view changed(collective_kind kind, std::size_t bytes, unsigned ranks, Change change) {
    collective_shape s = shape(kind, bytes, ranks);
    change(s);
    const algorithm* const found = default_collectives::choose(s);
    return found != nullptr ? found->name : "none";
}

}  // namespace

TEST_CASE("the first algorithm of a list that admits a shape carries it, and that is known to the compiler") {
    using enum collective_kind;
    STATIC_REQUIRE(mine::choose(shape(allreduce, 4096, 4))->name == "recursive_doubling");
    STATIC_REQUIRE(mine::choose(shape(allreduce, 4104, 4))->name == "rabenseifner");
    STATIC_REQUIRE(mine::choose(shape(broadcast, 32768, 4))->name == "binomial");
    STATIC_REQUIRE(mine::choose(shape(broadcast, 32776, 4))->name == "scatter_allgather");
    STATIC_REQUIRE(mine::choose(shape(barrier, 0, 4)) == nullptr);
    // Fewer elements than ranks cannot be cut.
    STATIC_REQUIRE(collectives<rc::broadcast<scatter_allgather<>>>::choose(shape(broadcast, 24, 4)) ==
                   nullptr);
    // Nor an order kept that an algorithm does not have.
    collective_shape ordered = shape(allreduce, 1 << 20, 4);
    ordered.in_order = true;
    CHECK(mine::choose(ordered) == nullptr);
    CHECK(chosen(&default_collectives::choose, ordered) == "recursive_doubling");
}

TEST_CASE("the default for few and for many ranks") {
    using enum collective_kind;
    const algorithm_choice by = &default_collectives::choose;
    CHECK(chosen(by, shape(barrier, 0, 8)) == "dissemination");
    CHECK(chosen(by, shape(barrier, 0, 8, 2)) == "hierarchical");
    CHECK(chosen(by, shape(barrier, 0, 8, 8)) == "dissemination");
    CHECK(chosen(by, shape(allreduce, 8, 64)) == "recursive_doubling");
    CHECK(chosen(by, shape(allreduce, 65536, 2)) == "recursive_doubling");
    CHECK(chosen(by, shape(allreduce, 65536, 64)) == "rabenseifner");
    CHECK(chosen(by, shape(alltoall, 8, 64)) == "bruck");
    CHECK(chosen(by, shape(alltoall, 1 << 20, 64)) == "pairwise");
    // Every kind has one for every shape.
    for (std::size_t kind = 0; kind < collective_kinds; ++kind) {
        for (const unsigned ranks : {2u, 3u, 8u, 100u}) {
            for (const unsigned flags : {0u, 1u, 2u, 4u, 7u, 9u, 15u}) {
                for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 30}) {
                    collective_shape one = shape(static_cast<collective_kind>(kind), bytes, ranks);
                    one.in_order = (flags & 1) != 0;
                    one.reproducible = (flags & 2) != 0;
                    one.uneven = (flags & 4) != 0;
                    one.left_fold = (flags & 8) != 0 && one.kind >= collective_kind::reduce;
                    INFO(name_of(one.kind) << ' ' << ranks << ' ' << bytes << ' ' << flags);
                    CHECK(by(one) != nullptr);
                }
            }
        }
    }
}

TEST_CASE("explain_collectives has a line where the algorithm changes") {
    const std::string table = explain_collectives(4);
    CHECK(table.find("collectives of 4 ranks on 1 host") == 0);
    CHECK(table.find("allreduce       0            recursive_doubling\n                  8200         "
                     "rabenseifner\n") != std::string::npos);
    CHECK(table.find("none") == std::string::npos);
}

TEST_CASE("after a failure those that are left go on with a smaller group") {
    run_nodes([]() -> task<> {
        ranks<shm> all(3);
        co_await all.open();
        all.vanish(2);
        int ended = 0;
        const auto body = [&ended](group& g) -> task<> {
            if (!g) co_return;
            std::vector<int> x(3, 1);
            if (!co_await rc::as_result(g.allreduce(rc::in_place, x, std::plus<>{}))) {
                g = co_await g.shrink();  // every rank that is left comes here
                co_await g.allreduce(rc::in_place, x, std::plus<>{});
            }
            CHECK(g.size() == 2);
            ++ended;
        };
        co_await all.each(body);
        CHECK(ended == 2);
    });
}

TEST_CASE(
    "an operation with an order, uneven blocks and reproducible sums get an algorithm that keeps them") {
    const auto in_order = [](collective_shape& s) { s.in_order = true; };
    const auto same_bits = [](collective_shape& s) { s.reproducible = true; };
    CHECK(changed(collective_kind::allreduce, 1u << 20, 8, in_order) == "recursive_doubling");
    CHECK(changed(collective_kind::allreduce, 1u << 20, 8, same_bits) == "recursive_doubling");
    CHECK(changed(collective_kind::reduce, 1u << 20, 8, in_order) == "spanning_tree");
    CHECK(changed(collective_kind::reduce_scatter, 1024, 8, in_order) == "by_root");
    CHECK(changed(collective_kind::reduce_scatter, 1024, 8, same_bits) == "recursive_halving");
    CHECK(changed(collective_kind::reduce_scatter, 1u << 20, 8, same_bits) == "recursive_halving");
    CHECK(changed(collective_kind::reduce_scatter, 1024, 7, same_bits) == "recursive_halving");
    CHECK(changed(collective_kind::reduce_scatter, 1u << 20, 7, same_bits) == "recursive_halving");
    const auto uneven = [](collective_shape& s) {
        s.uneven = true;
        s.bytes = s.elements = 0;
    };
    CHECK(changed(collective_kind::gather, 0, 8, uneven) == "overlapped_flat_tree");
    CHECK(changed(collective_kind::scatter, 0, 8, uneven) == "overlapped_flat_tree");
}

TEST_CASE("an algorithm is found by its name, for the kinds that it carries") {
    REQUIRE(find_algorithm(collective_kind::allreduce, "rabenseifner") != nullptr);
    CHECK(find_algorithm(collective_kind::allreduce, "rabenseifner")->name == "rabenseifner");
    CHECK(find_algorithm(collective_kind::barrier, "rabenseifner") == nullptr);
    CHECK(find_algorithm(collective_kind::allreduce, "") == nullptr);
}

TEST_CASE("the table of eight ranks on one host") {
    CHECK(explain_collectives(8) == R"(collectives of 8 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  131080       by_parts of spanning_tree and recursive_doubling
                  1048576      chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  72           overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  65544        by_parts of recursive_halving and spanning_tree
                  524288       ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

TEST_CASE("the table of two ranks differs where a short way to the other rank is the best for longer") {
    CHECK(explain_collectives(2) == R"(collectives of 2 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  262144       chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            pairwise
  reduce          0            spanning_tree
                  131072       ring
  allreduce       0            recursive_doubling
                  131080       rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

TEST_CASE("the table of sixty-four ranks on four hosts") {
    CHECK(explain_collectives(64, 4) == R"(collectives of 64 ranks on 4 hosts, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            hierarchical
  broadcast       0            hierarchical
                  65544        binomial
                  131080       by_parts of spanning_tree and recursive_doubling
                  8388608      chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            hierarchical
                  65544        by_parts of recursive_halving and spanning_tree
                  4194304      ring
  allreduce       0            hierarchical
                  16392        rabenseifner
                  524288       ring_by_host
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

TEST_CASE("the tables of many ranks: limits know how many there are, and whether that is a power of two") {
    CHECK(explain_collectives(64) == R"(collectives of 64 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  131080       by_parts of spanning_tree and recursive_doubling
                  8388608      chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  65544        by_parts of recursive_halving and spanning_tree
                  4194304      ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(127) == R"(collectives of 127 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  260096       by_parts of spanning_tree and recursive_doubling
                  16646144     chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            bruck
                  2056         ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  130048       by_parts of recursive_halving and spanning_tree
                  8323072      ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
                  2080768      ring
  reduce_scatter  0            recursive_halving
                  4104         ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(128) == R"(collectives of 128 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  262144       by_parts of spanning_tree and recursive_doubling
                  16777216     chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  131072       by_parts of recursive_halving and spanning_tree
                  8388608      ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(1000) == R"(collectives of 1000 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  2048000      by_parts of spanning_tree and recursive_doubling
                  131072000    chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            bruck
                  2056         ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  1024000      by_parts of recursive_halving and spanning_tree
                  65536000     ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
                  16384000     ring
  reduce_scatter  0            recursive_halving
                  4104         ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(1000, 16) == R"(collectives of 1000 ranks on 16 hosts, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            hierarchical
  broadcast       0            hierarchical
                  65544        binomial
                  2048000      by_parts of spanning_tree and recursive_doubling
                  131072000    chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            bruck
                  2056         ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            hierarchical
                  65544        spanning_tree
                  1024000      by_parts of recursive_halving and spanning_tree
                  65536000     ring
  allreduce       0            hierarchical
                  16392        rabenseifner
                  8192000      ring_by_host
  reduce_scatter  0            recursive_halving
                  4104         ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

}  // namespace test_service_collectives
