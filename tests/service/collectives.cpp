#include <rdmacoro/service/collectives.hpp>

#include "support/catch.hpp"

#include <string>
#include <string_view>

using namespace rdmacoro;

namespace {

constexpr collective_shape shape_of(collective_kind kind, std::size_t bytes, unsigned ranks,
                                    unsigned hosts = 1) {
    collective_shape s;
    s.kind = kind;
    s.bytes = bytes;
    s.elements = bytes / 8;
    s.ranks = ranks;
    s.hosts = hosts;
    return s;
}

// The choice is made by a function that the compiler can evaluate.
using mine = collectives<allreduce<recursive_doubling<up_to<64>>, ring<>>>;
static_assert(mine::choose(shape_of(collective_kind::allreduce, 64, 4))->name == "recursive_doubling");
static_assert(mine::choose(shape_of(collective_kind::allreduce, 72, 4))->name == "ring");
static_assert(mine::choose(shape_of(collective_kind::broadcast, 72, 4)) == nullptr);
static_assert(default_collectives::choose(shape_of(collective_kind::barrier, 0, 8, 2))->name ==
              "hierarchical");

template <class Change>
std::string_view chosen(collective_kind kind, std::size_t bytes, unsigned ranks, Change change) {
    collective_shape s = shape_of(kind, bytes, ranks);
    change(s);
    const algorithm* const found = default_collectives::choose(s);
    return found != nullptr ? found->name : "none";
}

}  // namespace

TEST_CASE("the default has an algorithm for everything that can be asked for") {
    std::string missing;
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        for (unsigned ranks = 2; ranks <= 70; ++ranks) {
            for (const unsigned hosts : {1u, 2u, ranks}) {
                for (const std::size_t bytes :
                     {std::size_t{0}, std::size_t{8}, std::size_t{4096}, std::size_t{1} << 26}) {
                    for (unsigned flags = 0; flags < 8; ++flags) {
                        collective_shape s =
                            shape_of(static_cast<collective_kind>(which), bytes, ranks, hosts);
                        s.in_order = (flags & 1) != 0;
                        s.reproducible = (flags & 2) != 0;
                        if ((flags & 4) != 0) {
                            s.uneven = true;
                            s.bytes = s.elements = 0;
                        }
                        const algorithm* const found = default_collectives::choose(s);
                        if (found == nullptr) missing += std::string(name_of(s.kind)) + " ";
                    }
                }
            }
        }
    }
    CHECK(missing == "");
}

TEST_CASE(
    "an operation with an order, uneven blocks and reproducible sums get an algorithm that keeps them") {
    const auto in_order = [](collective_shape& s) { s.in_order = true; };
    const auto same_bits = [](collective_shape& s) { s.reproducible = true; };
    CHECK(chosen(collective_kind::allreduce, 1u << 20, 8, in_order) == "recursive_doubling");
    CHECK(chosen(collective_kind::allreduce, 1u << 20, 8, same_bits) == "recursive_doubling");
    CHECK(chosen(collective_kind::reduce, 1u << 20, 8, in_order) == "spanning_tree");
    CHECK(chosen(collective_kind::reduce_scatter, 1024, 8, in_order) == "by_root");
    CHECK(chosen(collective_kind::reduce_scatter, 1024, 8, same_bits) == "recursive_halving");
    CHECK(chosen(collective_kind::reduce_scatter, 1024, 7, same_bits) == "by_root");
    const auto uneven = [](collective_shape& s) {
        s.uneven = true;
        s.bytes = s.elements = 0;
    };
    CHECK(chosen(collective_kind::gather, 0, 8, uneven) == "overlapped_flat_tree");
    CHECK(chosen(collective_kind::scatter, 0, 8, uneven) == "overlapped_flat_tree");
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
                  131080       chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  8200         ring
  alltoall        0            bruck
                  72           overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  65544        ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
)");
}

TEST_CASE("the table of two ranks differs where a short way to the other rank is the best for longer") {
    CHECK(explain_collectives(2) == R"(collectives of 2 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  131080       chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  8200         ring
  alltoall        0            bruck
                  72           overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  65544        ring
  allreduce       0            recursive_doubling
                  131080       rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
)");
}

TEST_CASE("the table of sixty-four ranks on four hosts") {
    CHECK(explain_collectives(64, 4) == R"(collectives of 64 ranks on 4 hosts, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            hierarchical
  broadcast       0            hierarchical
                  65544        binomial
                  131080       chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  8200         ring
  alltoall        0            bruck
                  72           overlapped_flat_tree
                  8200         pairwise
  reduce          0            hierarchical
                  65544        ring
  allreduce       0            hierarchical
                  16392        rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
)");
}
