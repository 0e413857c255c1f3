#include <rdmacoro/service/detail/kept_value.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <array>
#include <memory>

namespace test_service_detail_kept_value {

using rdmacoro::detail::apart_value;
using rdmacoro::detail::kept_value;
using namespace rdmacoro::test;

namespace {
struct counted {
    explicit counted(int& n) : alive(&n) { ++*alive; }
    counted(counted&& other) noexcept : alive(other.alive) { ++*alive; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --*alive; }
    int* alive;
};
struct long_one : counted {
    using counted::counted;
    std::array<char, 1000> more{};
};
}  // namespace

TEST_CASE("a kept value ends once: with its keeper, by clear, or when another takes its place") {
    int alive = 0;
    {
        kept_value place;
        place.keep(counted(alive));
        CHECK(alive == 1);
        place.keep(long_one(alive));
        CHECK(alive == 1);
        place.clear();
        CHECK(alive == 0);
        place.clear();
        place.keep(counted(alive));
    }
    CHECK(alive == 0);
}

TEST_CASE("a value that is kept apart stays where it is when its keeper moves, and ends once") {
    int alive = 0;
    {
        apart_value none;
        apart_value first;
        const counted& value = first.keep(counted(alive));
        CHECK(alive == 1);
        apart_value second(std::move(first));
        apart_value third(std::move(second));
        CHECK(value.alive == &alive);
        CHECK(alive == 1);
    }
    CHECK(alive == 0);
}

TEST_CASE("a short value is kept without allocation") {
    int alive = 0;
    const std::size_t before = allocations();
    kept_value place;
    place.keep(counted(alive));
    if (counts_allocations) CHECK(allocations() == before);
    place.keep(long_one(alive));
    place.clear();
    const std::size_t warm = allocations();
    place.keep(long_one(alive));  // in memory that another one had
    if (counts_allocations) CHECK(allocations() == warm);
}

}  // namespace test_service_detail_kept_value
