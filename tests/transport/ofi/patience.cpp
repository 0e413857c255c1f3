#include <rdmacoro/transport/ofi/patience.hpp>

#include "support/catch.hpp"

namespace test_transport_ofi_patience {

using rdmacoro::detail::fabric::patience;
using namespace std::chrono_literals;

namespace {
/// Looks every 5 ms, for so long, at pieces of which none ends. True: it is over at the end, and not before.
bool over_after(patience& p, patience::clock::time_point& now, std::chrono::milliseconds some,
                std::uint64_t ended, patience::clock::duration idle = patience::without_an_end) {
    const auto until = now + some;
    while (now < until) {
        if (p.over(now, ended, idle)) return false;
        now += 5ms;
    }
    return p.over(now, ended, idle);
}
}  // namespace

TEST_CASE("patience is over when nothing has ended for a while, and begins with the first look") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    CHECK_FALSE(p.begun());
    CHECK_FALSE(p.over(now, 7));
    CHECK(p.begun());
    CHECK(over_after(p, now, 105ms, 7));
}

TEST_CASE("each end of a piece prolongs patience, up to its limit") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    std::uint64_t ended = 0;
    for (const auto until = now + 1s; now <= until; now += 5ms) CHECK_FALSE(p.over(now, ended++));
    CHECK(p.over(now, ended));
    patience slow;
    CHECK_FALSE(over_after(slow, now, 90ms, 0));
    CHECK_FALSE(slow.over(now, 1));
    CHECK(over_after(slow, now, 105ms, 1));
}

TEST_CASE("time in which nobody looks takes little of the patience") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    CHECK_FALSE(p.over(now, 0));
    CHECK_FALSE(p.over(now += 500ms, 0));  // the process did not run
    CHECK_FALSE(p.over(now += 5s, 0));
    CHECK(over_after(p, now, 85ms, 0));
}

TEST_CASE("there is more patience with a peer that is ending") {
    auto now = patience::clock::time_point() + 1h;
    patience p;
    CHECK_FALSE(over_after(p, now, 900ms, 0, patience::for_the_dead));
    CHECK(over_after(p, now, 105ms, 0, patience::for_the_dead));
}

}  // namespace test_transport_ofi_patience
