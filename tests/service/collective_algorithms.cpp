#include <rdmacoro/service/collective_algorithms.hpp>

#include "support/catch.hpp"

namespace test_service_collective_algorithms {

using namespace rdmacoro;
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

}  // namespace test_service_collective_algorithms
