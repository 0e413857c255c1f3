#include <rdmacoro/protocol/detail/region_list.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <set>

namespace test_protocol_detail_region_list {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Opens memory under increasing keys.
struct counting_owner final : detail::region_owner {
    std::set<std::uint64_t> open;
    std::uint64_t next = 1;

    region make() {
        static std::byte memory[8];
        open.insert(next);
        return {*this, memory, {0x1000 + next, 8, next++}};
    }
    void deregister(std::uint64_t key) noexcept override { open.erase(key); }
};

}  // namespace

TEST_CASE("a list of regions names all of them, in order, and closes them together") {
    counting_owner owner;
    detail::region_list list;
    CHECK(list.empty());
    for (unsigned n = 0; n < detail::remote_pieces::most; ++n) {
        CHECK_FALSE(list.full());
        REQUIRE(list.add(owner.make()));
        CHECK(list.size() == n + 1);
    }
    CHECK(list.full());
    detail::remote_pieces pieces;
    list.name_in(pieces);
    REQUIRE(pieces.count == detail::remote_pieces::most);
    for (std::uint32_t n = 0; n < pieces.count; ++n) {
        CHECK(pieces.at[n].key == n + 1);
        CHECK(pieces.at[n].address == 0x1001 + n);
        CHECK(pieces.at[n].length == 8);
    }
    list.clear();
    CHECK(owner.open.empty());
    CHECK(list.empty());
    REQUIRE(list.add(owner.make()));
    CHECK(owner.open.size() == 1);
}

TEST_CASE("regions that are still open end with their list") {
    counting_owner owner;
    {
        detail::region_list list;
        for (int n = 0; n < 5; ++n) REQUIRE(list.add(owner.make()));
        CHECK(owner.open.size() == 5);
    }
    CHECK(owner.open.empty());
}

TEST_CASE("the first region of a list takes nothing from the heap, and the others take memory once") {
    if constexpr (!counts_allocations) SKIP_TEST("a sanitizer allocates");
    counting_owner owner;
    detail::region_list list;
    region first = owner.make();
    region second = owner.make();
    region third = owner.make();
    const std::size_t before = allocations();
    REQUIRE(list.add(std::move(first)));
    CHECK(allocations() == before);
    REQUIRE(list.add(std::move(second)));
    CHECK(allocations() == before + 1);
    REQUIRE(list.add(std::move(third)));
    list.clear();
    REQUIRE(list.add(region{}));
    REQUIRE(list.add(region{}));
    CHECK(allocations() == before + 1);
}

TEST_CASE("a region for which there is no memory is closed, and those before it stay") {
    if constexpr (!counts_allocations) SKIP_TEST("a sanitizer allocates");
    counting_owner owner;
    detail::region_list list;
    REQUIRE(list.add(owner.make()));
    region second = owner.make();
    {
        const failing_allocations all(1, ~std::size_t{0});
        CHECK_FALSE(list.add(std::move(second)));
    }
    CHECK(list.size() == 1);
    CHECK(owner.open == std::set<std::uint64_t>{1});
}

}  // namespace test_protocol_detail_region_list
