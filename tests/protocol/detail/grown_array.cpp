#include <rdmacoro/protocol/detail/grown_array.hpp>

#include "support/catch.hpp"

namespace test_protocol_detail_grown_array {

using rdmacoro::detail::grown_array;

TEST_CASE("an array grows, holds what it held, and answers for memory that is short") {
    grown_array<std::uint64_t> numbers;
    CHECK(numbers.size() == 0);
    for (std::uint32_t n = 0; n < 1000; ++n) {
        REQUIRE(numbers.reach(n + 1));
        CHECK(numbers[n] == 0);
        numbers[n] = n;
    }
    for (std::uint32_t n = 0; n < 1000; ++n) REQUIRE(numbers[n] == n);
    REQUIRE(numbers.reach(10));
    CHECK(numbers.size() == 1000);
}

TEST_CASE("values are taken out first in, first out") {
    grown_array<std::uint32_t> queue;
    REQUIRE(queue.reserve(3));
    for (const std::uint32_t n : {7u, 8u, 9u}) queue.push_back(n);
    CHECK(queue.contains(8));
    CHECK(queue.pop_front() == 7);
    CHECK(queue.pop_front() == 8);
    CHECK_FALSE(queue.contains(8));
    CHECK(queue.size() == 1);
    queue.clear();
    CHECK(queue.size() == 0);
}

}  // namespace test_protocol_detail_grown_array
