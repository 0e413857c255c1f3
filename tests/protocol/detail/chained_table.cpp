#include <rdmacoro/protocol/detail/chained_table.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>

namespace test_protocol_detail_chained_table {

using namespace rdmacoro;

namespace {

struct item : detail::list_node<item> {
    explicit item(std::uint64_t its_key) : key(its_key) {}
    std::uint64_t key;
};
using table = detail::chained_table<item, item>;

std::uint64_t hash_of(const item& one) noexcept { return detail::tag_hash(one.key); }

void put(table& in, item& one, std::size_t elements) {
    in.grow_if_full(elements, hash_of);
    in.bucket(hash_of(one)).push_back(one);
}

}  // namespace

TEST_CASE("a table of a few elements takes no memory of its own") {
    table few;
    std::deque<item> items;
    for (std::size_t n = 1; n <= table::most_in_one; ++n) put(few, items.emplace_back(n), n);
    CHECK(few.footprint() == 0);
    put(few, items.emplace_back(9), 9);
    CHECK(few.footprint() > 0);
}

TEST_CASE("elements are found, in their order, however far the table grows") {
    table many;
    std::deque<item> items;
    for (std::size_t n = 0; n < 10000; ++n) {
        put(many, items.emplace_back(n / 2), n + 1);
        REQUIRE(many.footprint() <= 16 * (n + 1));
    }
    std::size_t longest = 0;
    std::size_t all = 0;
    many.for_each_list([&](table::list& list) {
        std::size_t length = 0;
        for (item* one = list.front(); one != nullptr; one = list.next(*one)) ++length;
        longest = length > longest ? length : longest;
        all += length;
    });
    CHECK(all == items.size());
    CHECK(longest <= 16);
    for (std::size_t n = 0; n < items.size(); ++n) {
        table::list& list = many.bucket(hash_of(items[n]));
        item* first = list.front();
        while (first != nullptr && first->key != n / 2) first = list.next(*first);
        REQUIRE(first == &items[n]);
        first->unlink();
    }
    many.emptied();
    CHECK(many.footprint() <= 4096);
    put(many, items.front(), 1);
    CHECK(many.bucket(hash_of(items.front())).front() == &items.front());
}

TEST_CASE("tags that a peer has computed to share a list are in many") {
    // Multiplied as every process does they all have the same highest 14 bits.
    constexpr std::uint64_t multiplier = 0x9e3779b97f4a7c15u;
    std::uint64_t inverse = multiplier;
    for (int n = 0; n < 6; ++n) inverse *= 2 - multiplier * inverse;
    REQUIRE(inverse * multiplier == 1);
    table many;
    std::deque<item> items;
    for (std::uint64_t n = 0; n < 16384; ++n)
        put(many, items.emplace_back((std::uint64_t{77} << 50 | n << 20) * inverse), n + 1);
    std::size_t longest = 0;
    many.for_each_list([&](table::list& list) {
        std::size_t length = 0;
        for (item* one = list.front(); one != nullptr; one = list.next(*one)) ++length;
        longest = length > longest ? length : longest;
    });
    CHECK(longest < 200);
}

}  // namespace test_protocol_detail_chained_table
