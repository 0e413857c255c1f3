#include <rdmacoro/transport/ofi/patience.hpp>

#include "support/catch.hpp"

namespace test_transport_ofi_patience {

using rdmacoro::detail::fabric::patience;
using namespace std::chrono_literals;

TEST_CASE("patience is over when nothing has ended for a while, and begins with the first look") {
    const auto begin = patience::clock::time_point() + 1h;
    patience p;
    CHECK_FALSE(p.begun());
    CHECK_FALSE(p.over(begin, 7));
    CHECK(p.begun());
    CHECK_FALSE(p.over(begin + 100ms, 7));
    CHECK(p.over(begin + 101ms, 7));
}

TEST_CASE("each end of a piece prolongs patience, up to its limit") {
    const auto begin = patience::clock::time_point() + 1h;
    patience p;
    std::uint64_t ended = 0;
    for (auto now = begin; now <= begin + 1s; now += 50ms) CHECK_FALSE(p.over(now, ended++));
    CHECK(p.over(begin + 1001ms, ended));
    patience slow;
    CHECK_FALSE(slow.over(begin, 0));
    CHECK_FALSE(slow.over(begin + 90ms, 1));
    CHECK_FALSE(slow.over(begin + 190ms, 1));
    CHECK(slow.over(begin + 191ms, 1));
}

}  // namespace test_transport_ofi_patience
