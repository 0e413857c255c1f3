#include <rdmacoro/coro/detail/plain_vector.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace test_coro_detail_plain_vector {

using rdmacoro::detail::plain_vector;

namespace {

std::vector<int> contents(const plain_vector<int>& of) { return std::vector<int>(of.begin(), of.end()); }

}  // namespace

TEST_CASE("a plain vector holds what was pushed, inserted and erased, as std::vector does") {
    std::mt19937 random(rdmacoro::test::seed());
    plain_vector<int> tested;
    std::vector<int> model;
    for (int n = 0; n < 3000; ++n) {
        const std::size_t at = random() % (model.size() + 1);
        switch (random() % 4) {
            case 0:
                tested.push_back(n);
                model.push_back(n);
                break;
            case 1:
                REQUIRE(tested.try_insert(at, n));
                model.insert(model.begin() + static_cast<std::ptrdiff_t>(at), n);
                break;
            case 2:
                if (at == model.size()) break;
                tested.erase(at);
                model.erase(model.begin() + static_cast<std::ptrdiff_t>(at));
                break;
            default:
                if (model.empty()) break;
                REQUIRE(tested.back() == model.back());
                tested.pop_back();
                model.pop_back();
        }
        REQUIRE(tested.size() == model.size());
        REQUIRE(tested.empty() == model.empty());
    }
    CHECK(contents(tested) == model);
}

TEST_CASE("a plain vector moves its memory, and reserves it") {
    plain_vector<int> from;
    REQUIRE(from.try_reserve(100));
    CHECK(from.capacity() >= 100);
    from.push_back(7);
    const int* const where = from.data();
    plain_vector<int> to(std::move(from));
    CHECK(to.data() == where);
    CHECK(to.front() == 7);
    plain_vector<int> other;
    other.push_back(1);
    other = std::move(to);
    CHECK(contents(other) == std::vector<int>{7});
    other.clear();
    CHECK(other.empty());
    CHECK(other.capacity() >= 100);
}

TEST_CASE("a plain vector refuses more than memory can hold and stays as it was") {
    plain_vector<std::uint64_t> numbers;
    numbers.push_back(3);
    CHECK_FALSE(numbers.try_reserve(SIZE_MAX / 8));
    CHECK(numbers.size() == 1);
    CHECK(numbers[0] == 3);
}

}  // namespace test_coro_detail_plain_vector
