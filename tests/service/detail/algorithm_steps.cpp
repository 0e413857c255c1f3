#include <rdmacoro/service/detail/algorithm_steps.hpp>

#include "support/catch.hpp"

#include <set>
#include <vector>

namespace test_service_detail_algorithm_steps {

using namespace rdmacoro::detail;

TEST_CASE("a spanning tree reaches every rank once, from one that was reached before, in as many levels as "
          "the size has bits") {
    for (unsigned size = 1; size <= 40; ++size) {
        for (unsigned root = 0; root < size; ++root) {
            std::vector<unsigned> reached(size, 0);
            for (unsigned rank = 0; rank < size; ++rank) {
                const tree_path path(rank, size, root);
                CHECK((1u << path.levels()) < 4 * size);
                bool has = rank == root;
                for (unsigned level = 0; level < path.levels(); ++level) {
                    const tree_level& at = path[level];
                    REQUIRE(at.left <= rank);
                    REQUIRE(rank <= at.right);
                    if (at.from == rank) REQUIRE(has);
                    if (at.to == rank) {
                        REQUIRE(!has);
                        has = true;
                        ++reached[rank];
                    }
                }
                REQUIRE(has);
            }
            for (unsigned rank = 0; rank < size; ++rank) REQUIRE(reached[rank] == (rank == root ? 0 : 1));
        }
    }
}

TEST_CASE("parts of elements cover them all, without a gap, and differ by one element at most") {
    for (const std::size_t elements : {0u, 1u, 5u, 6u, 7u, 100u}) {
        const element_parts parts{elements, 4, 6};
        CHECK(parts.offset(0) == 0);
        CHECK(parts.offset(6) == elements * 4);
        for (unsigned part = 0; part < 6; ++part) {
            const std::size_t bytes = parts.offset(part + 1) - parts.offset(part);
            CHECK(bytes % 4 == 0);
            CHECK(bytes / 4 >= elements / 6);
            CHECK(bytes / 4 <= elements / 6 + 1);
        }
    }
}

TEST_CASE("block_at is the part of the memory that a block has") {
    std::vector<std::byte> memory(3);
    CHECK(block_at(memory, 1, 1, 2).data() == memory.data() + 1);
    CHECK(block_at(memory, 1, 1, 2).size() == 2);
}

}  // namespace test_service_detail_algorithm_steps
