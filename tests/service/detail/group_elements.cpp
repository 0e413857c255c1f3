#include <rdmacoro/service/detail/group_elements.hpp>

#include "support/catch.hpp"

#include <array>
#include <list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace test_service_detail_group_elements {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

static_assert(elements_to_read<std::vector<int>&>);
static_assert(elements_to_write<std::vector<int>&>);
static_assert(elements_to_read<const std::array<char, 3>&>);
static_assert(!elements_to_write<const std::array<char, 3>&>);
static_assert(elements_to_write<double (&)[3]>);
static_assert(elements_to_write<std::span<short>>);
static_assert(!elements_to_write<std::span<const short>>);
// A temporary that owns its elements, elements that are not in a row, and those that are no plain bytes.
static_assert(!elements_to_read<std::vector<int>>);
static_assert(!elements_to_read<std::list<int>&>);
static_assert(!elements_to_read<std::vector<std::string>&>);
static_assert(!elements_to_read<int>);
// Blocks: by value, by name, only to read.
static_assert(elements_to_write<strided_elements<int>>);
static_assert(elements_to_write<strided_elements<int>&>);
static_assert(elements_to_read<strided_elements<const int>>);
static_assert(!elements_to_write<strided_elements<const int>>);
static_assert(same_elements<std::vector<int>&, strided_elements<const int>&>);
static_assert(!same_elements<std::vector<int>&, strided_elements<float>>);

// Counts of blocks, which are borrowed, too.
static_assert(std::is_convertible_v<std::vector<std::size_t>&, block_counts>);
static_assert(std::is_convertible_v<const std::vector<std::size_t>&, block_counts>);
static_assert(std::is_convertible_v<const std::size_t (&)[3], block_counts>);
static_assert(std::is_convertible_v<std::array<std::size_t, 3>&, block_counts>);
static_assert(std::is_convertible_v<std::span<const std::size_t>, block_counts>);
static_assert(!std::is_convertible_v<std::vector<std::size_t>, block_counts>);
static_assert(!std::is_convertible_v<std::array<std::size_t, 3>, block_counts>);
static_assert(!std::is_convertible_v<std::vector<int>&, block_counts>);

}  // namespace

TEST_CASE("rows and blocks say how many elements they have, where, and at which distance") {
    std::vector<int> x(20);
    CHECK(elements_in(x) == 20);
    CHECK(bytes_of_row(x) == 80);
    CHECK(read_from(x) == reinterpret_cast<const std::byte*>(x.data()));
    CHECK(stride_of(x).count == 0);
    const auto blocks = strided(x, 1, 2, 5, 4);
    CHECK(elements_in(blocks) == 8);
    CHECK(bytes_of_row(blocks) == 32);
    CHECK(write_to(blocks) == reinterpret_cast<std::byte*>(x.data() + 1));
    const row_stride how = stride_of(blocks);
    CHECK(how.block == 8);
    CHECK(how.step == 20);
    CHECK(how.count == 4);
}

TEST_CASE("blocks without a gap, one block and none are a row") {
    std::vector<int> x(20);
    CHECK(stride_of(strided(x, 0, 5, 5, 4)).count == 0);
    CHECK(stride_of(strided(x, 0, 5, 9, 1)).count == 0);
    CHECK(stride_of(strided(x, 0, 5, 9, 0)).count == 0);
    CHECK(elements_in(strided(x, 0, 5, 9, 0)) == 0);
    CHECK(stride_of(5).count == 0);
}

TEST_CASE("ranges overlap in part where they have some bytes in common, and not all") {
    const std::array<std::byte, 32> memory{};
    const auto overlap = [&](std::size_t a, std::size_t a_bytes, std::size_t b, std::size_t b_bytes) {
        const bool one = overlap_in_part(memory.data() + a, a_bytes, memory.data() + b, b_bytes);
        CHECK(overlap_in_part(memory.data() + b, b_bytes, memory.data() + a, a_bytes) == one);
        return one;
    };
    for (std::size_t a = 0; a < 6; ++a) {
        for (std::size_t b = 0; b < 6; ++b) {
            for (std::size_t a_bytes = 0; a_bytes < 6; ++a_bytes) {
                for (std::size_t b_bytes = 0; b_bytes < 6; ++b_bytes) {
                    bool in_common = false;
                    for (std::size_t at = a; at < a + a_bytes; ++at)
                        in_common = in_common || (at >= b && at < b + b_bytes);
                    const bool same = a == b && a_bytes == b_bytes;
                    CHECK(overlap(a, a_bytes, b, b_bytes) == (in_common && !same));
                }
            }
        }
    }
    CHECK(!overlap_in_part(nullptr, 0, nullptr, 0));
    CHECK(!overlap_in_part(nullptr, 0, memory.data(), 32));
}

TEST_CASE("a row is the same as itself, and as its blocks without a gap") {
    std::vector<int> x(20), y(20), none;
    CHECK(same_row(x, x));
    CHECK(same_row(none, none));
    CHECK(same_row(x, strided(x, 0, 5, 5, 4)));
    CHECK(!same_row(x, y));
    CHECK(!same_row(x, std::span(x).first(19)));
    CHECK(!same_row(strided(x, 0, 2, 5, 4), strided(x, 0, 2, 5, 4)));
}

}  // namespace test_service_detail_group_elements
