#include <rdmacoro/protocol/detail/speculation_window.hpp>

#include "support/catch.hpp"

namespace test_protocol_detail_speculation_window {

using rdmacoro::detail::speculation_window;

namespace {

/// How many announcements, or watched receives, it takes until the window turns; 0: not among `most`.
unsigned until_off(speculation_window& w, unsigned most, unsigned used_of_16) {
    for (unsigned n = 0; n < most; ++n) {
        if (w.announced(n % 16 < used_of_16)) return n + 1;
    }
    return 0;
}
unsigned until_on(speculation_window& w, unsigned most, unsigned usable_of_16) {
    for (unsigned n = 0; n < most; ++n) {
        if (w.watched(n % 16 < usable_of_16)) return n + 1;
    }
    return 0;
}

}  // namespace

TEST_CASE("announcing begins turned on, and stops when fewer than half of the last 16 were used") {
    speculation_window w;
    CHECK(w.on());
    CHECK(until_off(w, 10000, 8) == 0);
    CHECK(w.on());
    speculation_window poor;
    CHECK(until_off(poor, 10000, 7) == 16);
    CHECK_FALSE(poor.on());
}

TEST_CASE("fewer than 16 announcements decide nothing") {
    speculation_window w;
    CHECK(until_off(w, 15, 0) == 0);
    CHECK(w.on());
    CHECK(w.announced(false));
}

TEST_CASE("announcing is tried again when 13 of the last 16 receives could have been used") {
    speculation_window w;
    REQUIRE(until_off(w, 16, 0) == 16);
    CHECK(until_on(w, 10000, 12) == 0);
    CHECK_FALSE(w.on());
    CHECK(until_on(w, 100, 16) != 0);
    CHECK(w.on());
}

TEST_CASE("between half and four fifths nothing changes, on or off") {
    speculation_window w;
    CHECK(until_off(w, 1600, 10) == 0);
    REQUIRE(until_off(w, 32, 0) != 0);
    CHECK(until_on(w, 1600, 10) == 0);
}

TEST_CASE("each try that does not pay makes the next one wait twice as long, up to 1024 receives") {
    speculation_window w;
    REQUIRE(until_off(w, 16, 0) == 16);
    for (const unsigned wait : {16u, 32u, 64u, 128u, 256u, 512u, 1024u, 1024u}) {
        CHECK(until_on(w, 5000, 16) == wait);
        CHECK(until_off(w, 5000, 0) == 16);
    }
}

TEST_CASE("a try that pays makes the wait short again") {
    speculation_window w;
    REQUIRE(until_off(w, 16, 0) == 16);
    REQUIRE(until_on(w, 5000, 16) == 16);
    REQUIRE(until_off(w, 5000, 0) == 16);
    REQUIRE(until_on(w, 5000, 16) == 32);
    CHECK(until_off(w, 64, 16) == 0);
    REQUIRE(until_off(w, 64, 0) != 0);
    CHECK(until_on(w, 5000, 16) == 16);
}

TEST_CASE("what was out when announcing stopped, or watched when it began, counts no more") {
    speculation_window w;
    REQUIRE(until_off(w, 16, 0) == 16);
    for (int n = 0; n < 100; ++n) CHECK_FALSE(w.announced(true));
    CHECK_FALSE(w.on());
    REQUIRE(until_on(w, 16, 16) == 16);
    for (int n = 0; n < 100; ++n) CHECK_FALSE(w.watched(false));
    CHECK(w.on());
}

}  // namespace test_protocol_detail_speculation_window
