#include <rdmacoro/transport/detail/poll_pace.hpp>

#include "support/catch.hpp"

namespace test_transport_detail_poll_pace {

using namespace rdmacoro;
using detail::poll_pace;

namespace {

time_point at(long microseconds) {
    return time_point(std::chrono::hours(1) + std::chrono::microseconds(microseconds));
}

/// Turns at one time until one does not poll.
unsigned polls_in_a_row(poll_pace& pace, time_point now) {
    unsigned polls = 0;
    while (polls < 10000 && pace.due(now)) ++polls;
    return polls;
}

}  // namespace

TEST_CASE("a network at rest is polled once in eight microseconds, and after each longer turn") {
    poll_pace pace;
    static_cast<void>(polls_in_a_row(pace, at(0)));
    unsigned polls = 0;
    for (long turn = 1; turn <= 8000; ++turn) polls += pace.due(at(turn / 10)) ? 1 : 0;
    CHECK(polls == 100);
    for (long turn = 1; turn <= 100; ++turn) CHECK(pace.due(at(1000 + 50 * turn)));
}

TEST_CASE("a network whose polls take long is polled less often, so that they take an eighth of the time") {
    poll_pace pace;
    static_cast<void>(polls_in_a_row(pace, at(0)));
    CHECK(pace.resting());
    for (int n = 0; n < 100; ++n) pace.took(std::chrono::microseconds(3));
    unsigned polls = 0;
    for (long turn = 1; turn <= 8000; ++turn) polls += pace.due(at(turn / 10)) ? 1 : 0;
    CHECK(polls >= 800 / 24 - 1);
    CHECK(polls <= 800 / 24 + 4);
    // One in which the core was taken away counts for little, a fast one at once.
    pace.took(std::chrono::milliseconds(10));
    polls = 0;
    for (long turn = 1; turn <= 8000; ++turn) polls += pace.due(at(1000 + turn / 10)) ? 1 : 0;
    CHECK(polls >= 14);
    pace.took(std::chrono::nanoseconds(500));
    polls = 0;
    for (long turn = 1; turn <= 8000; ++turn) polls += pace.due(at(2000 + turn / 10)) ? 1 : 0;
    CHECK(polls >= 100);  // the first one follows a longer rest
    CHECK(polls <= 101);
}

TEST_CASE("after a post each turn polls for a while") {
    poll_pace pace;
    static_cast<void>(polls_in_a_row(pace, at(0)));
    pace.posted();
    CHECK(polls_in_a_row(pace, at(0)) == poll_pace::polls_after_post);
}

TEST_CASE("completions soon after each other make each turn poll, the same number far apart does not") {
    poll_pace pace;
    static_cast<void>(polls_in_a_row(pace, at(0)));
    for (unsigned n = 0; n < 10 * poll_pace::hot_after; ++n) pace.brought(at(1000 * n));
    CHECK(polls_in_a_row(pace, at(100000)) == 1);
    for (unsigned n = 1; n < poll_pace::hot_after; ++n) pace.brought(at(200000 + n));
    CHECK(polls_in_a_row(pace, at(300000)) == 1);
    for (unsigned n = 0; n < poll_pace::hot_after; ++n) pace.brought(at(400000 + n));
    CHECK(polls_in_a_row(pace, at(400010)) >= poll_pace::polls_when_hot);
}

TEST_CASE("a post does not shorten the time in which each turn polls") {
    poll_pace pace;
    for (unsigned n = 0; n < poll_pace::hot_after; ++n) pace.brought(at(n));
    pace.posted();
    CHECK(polls_in_a_row(pace, at(10)) >= poll_pace::polls_when_hot);
}

TEST_CASE("a network that brought something lately is polled more often than one at rest, for a while") {
    poll_pace pace;
    static_cast<void>(polls_in_a_row(pace, at(0)));
    pace.brought(at(0));
    const auto polls_in = [&](long from, long to) {
        unsigned polls = 0;
        for (long tenth = 10 * from; tenth < 10 * to; ++tenth) polls += pace.due(at(tenth / 10)) ? 1 : 0;
        return polls;
    };
    const unsigned busy = polls_in(1, 3001);
    CHECK(busy >= 740);
    CHECK(busy <= 760);
    static_cast<void>(polls_in(3001, 4100));
    const unsigned resting = polls_in(4100, 7100);
    CHECK(resting >= 370);
    CHECK(resting <= 380);
}

}  // namespace test_transport_detail_poll_pace
