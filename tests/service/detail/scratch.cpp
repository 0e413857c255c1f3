#include <rdmacoro/service/detail/scratch.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <cstdint>
#include <list>
#include <new>

namespace test_service_detail_scratch {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;

TEST_CASE("scratch memory has the length that was asked for, is aligned, and is used again") {
    scratch_pool pool;
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{1000}, std::size_t{100'000}}) {
        const scratch memory(pool, bytes);
        CHECK(memory.bytes().size() == bytes);
        if (bytes > 1000)
            CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % scratch_pool::alignment == 0);
        for (std::byte& at : memory.bytes()) at = std::byte{1};
    }
    const std::size_t before = allocations();
    for (int n = 0; n < 100; ++n) {
        const scratch first(pool, 1000);
        const scratch second(pool, 100'000);
        CHECK(first.data() != second.data());
    }
    if (counts_allocations) CHECK(allocations() == before);
}

TEST_CASE("a pool of scratch memory does not keep what is above its limit") {
    scratch_pool pool;
    {
        // Three quarters of the limit each: the second to come back is let go.
        const scratch first(pool, scratch_pool::most_kept / 2);
        const scratch second(pool, scratch_pool::most_kept / 2);
        const scratch third(pool, scratch_pool::most_kept / 2);
        CHECK(first.data() != third.data());
    }
    const std::size_t before = allocations();
    const scratch again(pool, scratch_pool::most_kept / 2);
    const scratch another(pool, scratch_pool::most_kept / 2);
    if (counts_allocations) CHECK(allocations() == before);
    const scratch too_many(pool, scratch_pool::most_kept / 2);
    if (counts_allocations) CHECK(allocations() != before);
}

TEST_CASE("a block as long as all that is kept gives way to the one that is used next") {
    scratch_pool pool;
    { const scratch whole(pool, scratch_pool::most_kept); }
    { const scratch next(pool, 1u << 20); }
    const std::size_t before = allocations();
    { const scratch next(pool, 1u << 20); }
    { const scratch next(pool, 1u << 20); }
    if (counts_allocations) CHECK(allocations() == before);
}

TEST_CASE("what fits in the limit together is kept, whatever its lengths and the order of its uses") {
    scratch_pool pool;
    const auto in_turns = [&pool] {
        { const scratch lengthy(pool, std::size_t{34} << 20); }
        { const scratch brief(pool, 1000); }
    };
    scratch_pool another;
    const auto together = [&another] {
        const scratch first(another, std::size_t{20} << 20);
        const scratch second(another, std::size_t{20} << 20);
        const scratch third(another, std::size_t{20} << 20);
    };
    for (int n = 0; n < 2; ++n) {
        in_turns();
        together();
    }
    const std::size_t before = allocations();
    for (int n = 0; n < 10; ++n) {
        in_turns();
        together();
    }
    if (counts_allocations) CHECK(allocations() == before);
}

TEST_CASE("a length that no memory has is refused") {
    if (!counts_allocations) SKIP_TEST("a sanitizer ends a program that asks for so much");
    scratch_pool pool;
    CHECK_THROWS_AS(scratch(pool, ~std::size_t{0} - 100), std::bad_alloc);
}

TEST_CASE("many short blocks leave a place for a longer one") {
    scratch_pool pool;
    {
        std::list<scratch> many;
        for (int n = 0; n < 100; ++n) many.emplace_back(pool, 256);
    }
    { const scratch longer(pool, 100'000); }
    const std::size_t before = allocations();
    { const scratch longer(pool, 100'000); }
    if (counts_allocations) CHECK(allocations() == before);
}

TEST_CASE("a short piece of scratch memory does not hold a long block") {
    scratch_pool pool;
    { const scratch lengthy(pool, 1u << 20); }
    const std::size_t before = allocations();
    const scratch brief(pool, 1000);
    const scratch lengthy(pool, 1u << 20);
    if (counts_allocations) CHECK(allocations() == before + 1);
}

}  // namespace test_service_detail_scratch
