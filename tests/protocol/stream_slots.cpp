#include <rdmacoro/protocol/detail/stream_slots.hpp>

#include "support/catch.hpp"

#include <vector>

using namespace rdmacoro;

namespace {
struct slot {
    std::uint32_t next_free = 0;
    std::uint8_t owed = 0;
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

TEST_CASE("what is to be said is remembered once, said oldest first, and may be remembered again meanwhile") {
    detail::stream_slots<slot> slots;
    CHECK(slots.reach(3));
    CHECK(slots.remember(2));
    CHECK(slots.remember(0));
    CHECK_FALSE(slots.remember(2));
    CHECK(slots.remember(3));
    std::vector<std::uint32_t> said;
    slots.say_all([&](std::uint32_t id) noexcept {
        said.push_back(id);
        if (id == 0) CHECK(slots.remember(0));
    });
    CHECK(said == std::vector<std::uint32_t>{2, 0, 3});
    said.clear();
    slots.say_all([&](std::uint32_t id) noexcept { said.push_back(id); });
    CHECK(said == std::vector<std::uint32_t>{0});
    slots.say_all([&](std::uint32_t) noexcept { FAIL("nothing is left to say"); });
}

TEST_CASE("what is forgotten while it is being said is not said") {
    detail::stream_slots<slot> slots;
    CHECK(slots.reach(2));
    CHECK(slots.remember(0));
    CHECK(slots.remember(1));
    CHECK(slots.remember(2));
    unsigned said = 0;
    slots.say_all([&](std::uint32_t) noexcept {
        ++said;
        slots.forget_unsaid();
    });
    CHECK(said == 1);
}
