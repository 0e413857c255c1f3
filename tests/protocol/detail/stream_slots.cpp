#include <rdmacoro/protocol/detail/stream_slots.hpp>

#include "support/catch.hpp"

namespace test_protocol_detail_stream_slots {

using namespace rdmacoro;

namespace {
struct slot {
    slot() { ++living; }
    ~slot() { --living; }
    inline static int living = 0;
};
}  // namespace

TEST_CASE("slots are numbered from 0, and the one that was given back last is taken next") {
    detail::stream_slots<slot> slots;
    CHECK(slots.take() == 0);
    CHECK(slots.take() == 1);
    CHECK(slots.take() == 2);
    slots.give(0);
    slots.give(2);
    CHECK(slots.take() == 2);
    CHECK(slots.take() == 0);
    CHECK(slots.take() == 3);
    CHECK(slots.size() == 4);
}

TEST_CASE("slots are exhausted when as many are taken as there may be, and only then") {
    detail::stream_slots<slot> slots;
    for (unsigned n = 0; n < 5; ++n) {
        CHECK_FALSE(slots.exhausted(5));
        CHECK(slots.take() == n);
    }
    CHECK(slots.exhausted(5));
    slots.give(3);
    CHECK_FALSE(slots.exhausted(5));
}

TEST_CASE("slots stay in place when others are added") {
    detail::stream_slots<slot> slots;
    CHECK(slots.reach(0));
    slot* first = &slots[0];
    CHECK(slots.reach(1000));
    CHECK(slots.size() == 1001);
    CHECK(&slots[0] == first);
    CHECK(slots.reach(10));
    CHECK(slots.size() == 1001);
}

TEST_CASE("a slot that exists or the next is in sequence, and none behind") {
    detail::stream_slots<slot> slots;
    CHECK(slots.in_sequence(0));
    CHECK_FALSE(slots.in_sequence(1));
    CHECK(slots.reach(0));
    CHECK(slots.in_sequence(0));
    CHECK(slots.in_sequence(1));
    CHECK_FALSE(slots.in_sequence(2));
    CHECK_FALSE(slots.in_sequence(detail::slot_table::none));
}

TEST_CASE("a slot is remembered once, and the one that was remembered first is taken first") {
    detail::stream_slots<slot> slots;
    CHECK(slots.reach(3));
    CHECK(slots.remember(2));
    CHECK(slots.remember(0));
    CHECK_FALSE(slots.remember(2));
    CHECK(slots.remember(3));
    CHECK(slots.remembered() == 3);
    CHECK(slots.take_remembered() == 2);
    CHECK(slots.take_remembered() == 0);
    CHECK(slots.remember(0));
    CHECK(slots.take_remembered() == 3);
    CHECK(slots.take_remembered() == 0);
    CHECK(slots.take_remembered() == detail::slot_table::none);
}

TEST_CASE("a slot that was taken out may be the first again, unless it was remembered meanwhile") {
    detail::stream_slots<slot> slots;
    CHECK(slots.reach(2));
    CHECK(slots.remember(0));
    CHECK(slots.take_remembered() == 0);
    CHECK(slots.remember_first(0));
    CHECK(slots.remember(1));
    CHECK(slots.take_remembered() == 0);
    CHECK(slots.remember_first(0));
    CHECK_FALSE(slots.remember(0));
    CHECK_FALSE(slots.remember_first(1));
    CHECK(slots.remembered() == 2);
    CHECK(slots.take_remembered() == 0);
    CHECK(slots.take_remembered() == 1);
    CHECK(slots.take_remembered() == detail::slot_table::none);
}

TEST_CASE("slots that are forgotten are not remembered") {
    detail::stream_slots<slot> slots;
    CHECK(slots.reach(2));
    CHECK(slots.remember(0));
    CHECK(slots.remember(1));
    CHECK(slots.take_remembered() == 0);
    slots.forget_unsaid();
    CHECK(slots.remembered() == 0);
    CHECK(slots.take_remembered() == detail::slot_table::none);
    CHECK(slots.remember(1));
}

TEST_CASE("the slots of a table end with it") {
    {
        detail::stream_slots<slot> slots;
        CHECK(slots.reach(20));
        CHECK(slot::living == 21);
    }
    CHECK(slot::living == 0);
}

TEST_CASE("every slot of a table may be remembered at a time, however the table grew") {
    detail::stream_slots<slot> slots;
    CHECK(slots.reach(0));
    CHECK(slots.remember(0));
    CHECK(slots.reach(299));
    for (std::uint32_t id = 1; id < 300; ++id) CHECK(slots.remember(id));
    CHECK(slots.remembered() == 300);
    for (std::uint32_t id = 0; id < 300; ++id) CHECK(slots.take_remembered() == id);
    CHECK(slots.take_remembered() == detail::slot_table::none);
}

}  // namespace test_protocol_detail_stream_slots
