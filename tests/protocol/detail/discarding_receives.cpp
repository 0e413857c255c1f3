#include <rdmacoro/protocol/detail/discarding_receives.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace test_protocol_detail_discarding_receives {

using namespace rdmacoro;
using rdmacoro::detail::discarding_receive;
using rdmacoro::detail::discarding_receives;
using rdmacoro::detail::matcher;

// mailbox_options::canceled_receives states it.
static_assert(sizeof(discarding_receive) <= 432 - 16);

TEST_CASE("what has ended makes room for others, and no more are made than there may be") {
    scheduler on;
    matcher matching(false);
    discarding_receives some;
    std::vector<discarding_receive*> made;
    for (tag_type n = 0; n < 10; ++n) {
        made.push_back(some.make(on, n, 0, 10));
        REQUIRE(made.back() != nullptr);
        matching.post(*made.back());
    }
    CHECK(some.posted() == 10);
    CHECK(some.make(on, 11, 0, 10) == nullptr);
    for (tag_type n = 0; n < 5; ++n) {
        rdmacoro::detail::receive_request* const r = matching.arrived(0, n);
        REQUIRE(r == made[n]);
        r->finish({});
    }
    CHECK(some.posted() == 5);
    int again = 0;
    for (int n = 0; n < 5; ++n) {
        if (discarding_receive* const r = some.make(on, 11, 0, 10)) {
            matching.post(*r);
            ++again;
        }
    }
    CHECK(again == 5);
    some.end_all(matching);
    CHECK(matching.posted() == 0);
    CHECK(some.footprint() == 0);
}

TEST_CASE("one takes the place of a receive, and all move with their source") {
    scheduler on;
    matcher matching(false);
    matcher other(true);
    REQUIRE(other.add_source(3));
    discarding_receives some;
    discarding_receives others;
    discarding_receive* const first = some.make(on, 7, 0, 10);
    discarding_receive* const second = some.make(on, 7, 0, 10);
    discarding_receive* const instead = some.make(on, 7, 0, 10);
    for (int alone = 0; alone < 2; ++alone) {
        matching.post(*first);
        if (alone == 0) matching.post(*second);
        matching.replace(*first, *instead);
        CHECK(matching.posted() == (alone == 0 ? 2 : 1));
        CHECK(matching.arrived(0, 7) == instead);
        if (alone == 0) CHECK(matching.arrived(0, 7) == second);
        CHECK(matching.posted() == 0);
    }
    for (discarding_receive* r : {first, second, instead}) matching.post(*r);
    second->filling_ =
        reinterpret_cast<rdmacoro::detail::connection_base*>(&on);  // a message is coming to it
    matching.withdraw(*second);
    some.move_to(others, matching, other, 3);
    CHECK(matching.posted() == 0);
    CHECK(other.posted() == 2);
    CHECK(others.posted() == 2);
    CHECK(second->source_ == 3);
    CHECK(other.arrived(3, 7) == first);
    first->finish({});
    others.end_all(other);
    CHECK(other.posted() == 0);
}

TEST_CASE("those that move meet messages in the order in which their receives were posted") {
    scheduler on;
    matcher matching(false);
    matcher other(true);
    REQUIRE(other.add_source(3));
    discarding_receives some;
    discarding_receives others;
    std::vector<std::unique_ptr<discarding_receive>> receives;  // that are canceled, in another order
    constexpr std::size_t count = 1000;
    for (std::size_t n = 0; n < count; ++n) {
        receives.push_back(
            std::make_unique<discarding_receive>(on, n % 2 == 0 ? tag_match(5) : any_tag, any_source));
        matching.post(*receives.back());
    }
    std::vector<discarding_receive*> in_order(count);
    for (std::size_t n = 0; n < count; ++n) {
        const std::size_t which = n * 7 % count;
        discarding_receive* const instead = some.make(on, receives[which]->wanted_, any_source, count);
        REQUIRE(instead != nullptr);
        matching.replace(*receives[which], *instead);
        in_order[which] = instead;
    }
    some.move_to(others, matching, other, 3);
    CHECK(others.posted() == count);
    std::size_t met = 0;
    for (discarding_receive* expected : in_order) {
        detail::receive_request* const r = other.arrived(3, 5);
        REQUIRE(r != nullptr);
        met += r == expected ? 1 : 0;
        r->finish({});
    }
    CHECK(met == count);
    others.end_all(other);
}

}  // namespace test_protocol_detail_discarding_receives
