#include <rdmacoro/messaging/detail/connect_attempts.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace test_messaging_detail_connect_attempts {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using rdmacoro::detail::connect_attempts;

namespace {
std::string given_up(const connect_attempts& attempts, errc& code) {
    try {
        attempts.give_up();
    } catch (const error& why) {
        code = static_cast<errc>(why.code().value());
        return why.what();
    }
}
}  // namespace

TEST_CASE("pauses grow to a quarter of a second, and end with the time") {
    const time_point begun{};
    connect_attempts attempts("somewhere", 5s, begun);
    duration pause = 0s;
    for (int n = 0; n < 20; ++n) {
        pause = attempts.pause(begun);
        const duration whole = std::min<duration>(250ms, (1 << n) * 1ms);
        CHECK(pause >= whole / 2);
        CHECK(pause <= whole);
    }
    CHECK(attempts.pause(begun + 4999ms) == 1ms);
    CHECK(attempts.pause(begun + 6s) == 0s);
    CHECK(attempts.left(begun + 6s) == -1s);
}

TEST_CASE("a listener, room and a network may come; nothing else is tried again") {
    for (const errc code :
         {errc::connection_refused, errc::timed_out, errc::peer_lost, errc::closed, errc::no_resources})
        CHECK(detail::may_connect_later(make_error_code(code)));
    for (const std::errc code :
         {std::errc::network_down, std::errc::network_unreachable, std::errc::host_unreachable})
        CHECK(detail::may_connect_later(std::error_code(static_cast<int>(code), std::system_category())));
    for (const errc code :
         {errc::address_invalid, errc::canceled, errc::version_mismatch, errc::protocol_violation})
        CHECK_FALSE(detail::may_connect_later(make_error_code(code)));
    CHECK_FALSE(detail::may_connect_later(make_error_code(std::errc::permission_denied)));
    CHECK_FALSE(detail::may_connect_later({}));
}

TEST_CASE("attempts may go on for ever") {
    const time_point begun(std::chrono::hours(1));
    connect_attempts attempts("somewhere", duration::max(), begun);
    CHECK(attempts.left(begun) > std::chrono::hours(24 * 365 * 100));
    CHECK(attempts.pause(begun) > 0s);
}

TEST_CASE("clients that begin at other moments, or for other addresses, do not try again together") {
    std::set<duration> pauses;
    for (int n = 0; n < 50; ++n) {
        connect_attempts attempts(n % 2 == 0 ? "one" : "two", 5s, time_point(std::chrono::nanoseconds(n)));
        for (int skipped = 0; skipped < 8; ++skipped) static_cast<void>(attempts.pause({}));
        pauses.insert(attempts.pause({}));
    }
    CHECK(pauses.size() > 45);
}

TEST_CASE("the last attempt that said why is thrown in the end, and what does not pass is told apart") {
    connect_attempts attempts("somewhere", 5s, {});
    errc code{};
    CHECK_THAT(given_up(attempts, code), contains("somewhere"));
    CHECK(code == errc::timed_out);
    CHECK(attempts.failed(error(errc::peer_lost, "first")));
    CHECK(attempts.failed(error(errc::connection_refused, "no listener at 7471")));
    CHECK(attempts.failed(error(errc::timed_out, "cut off")));
    const std::string text = given_up(attempts, code);
    CHECK(code == errc::connection_refused);
    CHECK(text.starts_with("connect to somewhere: no listener at 7471 (3 attempts in 5000 ms): "));
    for (const errc lasting : {errc::canceled, errc::address_invalid, errc::permission_denied,
                               errc::version_mismatch, errc::protocol_mismatch})
        CHECK_FALSE(attempts.failed(error(lasting)));
}

TEST_CASE("a listener that never answers is named, and so is what it has not done") {
    connect_attempts attempts("tcp://somewhere:1", 5s, {});
    errc code{};
    CHECK(attempts.failed(error(errc::timed_out)));
    const std::string text = given_up(attempts, code);
    CHECK(code == errc::timed_out);
    CHECK(text.starts_with(
        "connect to tcp://somewhere:1: the listener has not answered (1 attempt in 5000 ms): "));
}

TEST_CASE("an address that the reason names is not named twice") {
    connect_attempts attempts("tcp://somewhere:1", 5s, {});
    errc code{};
    CHECK(attempts.failed(error(errc::connection_refused, "tcp: connect to tcp://somewhere:1: refused")));
    CHECK(given_up(attempts, code).starts_with("tcp: connect to tcp://somewhere:1: refused (1 attempt in "));
}

}  // namespace test_messaging_detail_connect_attempts
