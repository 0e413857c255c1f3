#include <rdmacoro/transport/detail/recycled_pool.hpp>

#include "support/catch.hpp"

#include <set>

namespace test_transport_detail_recycled_pool {

using namespace rdmacoro;

namespace {

struct item : detail::list_node<item> {
    static inline int alive = 0;
    item() noexcept { ++alive; }
    ~item() { --alive; }
    std::size_t place = 99;
};

using pool = detail::recycled_pool<item>;

item* take(pool& from) {
    return from.take([](item& made, std::size_t place) noexcept { made.place = place; });
}

static_assert(detail::recyclable<item>);
struct unlinked {};
static_assert(!detail::recyclable<unlinked>);

}  // namespace

TEST_CASE("a pool gives each object once, and the returned ones again before it makes another") {
    pool of;
    CHECK(of.exhausted());
    item* a = take(of);
    item* b = take(of);
    REQUIRE(a != nullptr);
    REQUIRE(b != nullptr);
    CHECK(a != b);
    CHECK(of.size() == 2);
    of.give(*a);
    CHECK_FALSE(of.exhausted());
    CHECK(take(of) == a);
    CHECK(of.size() == 2);
    CHECK(of.exhausted());
}

TEST_CASE("objects of a pool have places, which find them again") {
    pool of;
    std::set<item*> all;
    for (std::size_t place = 0; place < 100; ++place) {
        item* made = take(of);
        REQUIRE(made != nullptr);
        CHECK(made->place == place);
        CHECK(&of[place] == made);
        all.insert(made);
    }
    CHECK(all.size() == 100);
}

TEST_CASE("an object that is given back leaves the list that it was in") {
    pool of;
    detail::intrusive_list<item> used;
    used.push_back(*take(of));
    of.give(*used.front());
    CHECK(used.empty());
    item* again = take(of);
    CHECK_FALSE(again->linked());
}

TEST_CASE("a pool frees its objects, those in use included") {
    const int before = item::alive;
    {
        detail::intrusive_list<item> used;  // outlives the pool, which takes its objects out of it
        pool of;
        item* free = take(of);
        used.push_back(*take(of));
        of.give(*free);
        CHECK(item::alive == before + 2);
    }
    CHECK(item::alive == before);
}

}  // namespace test_transport_detail_recycled_pool
