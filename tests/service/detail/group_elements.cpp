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

}  // namespace test_service_detail_group_elements
