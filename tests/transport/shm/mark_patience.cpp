#include <rdmacoro/transport/shm/mark_patience.hpp>

#include "support/catch.hpp"

namespace test_transport_shm_mark_patience {

using namespace std::chrono_literals;
using rdmacoro::detail::shm::mark_patience;
using rdmacoro::detail::shm::mark_wait;

TEST_CASE("waits together take what there is, and little of the time that passes afterwards") {
    mark_patience patience;
    auto now = mark_patience::clock::now();
    CHECK(patience.allowance(now) == mark_patience::most);
    patience.spend(700ms);
    CHECK(patience.allowance(now) == 300ms);
    patience.spend(2s);
    CHECK(patience.allowance(now) == mark_patience::least);
    now += 2s;
    CHECK(patience.allowance(now) == 100ms);
    CHECK(patience.allowance(now) == 100ms);
    now += 1h;
    CHECK(patience.allowance(now) == mark_patience::most);
}

TEST_CASE("a wait costs only what it takes") {
    mark_patience patience;
    { const mark_wait nothing_to_wait_for(patience); }
    {
        mark_wait short_one(patience);
        CHECK_FALSE(short_one.over());  // a peer that has lost its core for a moment keeps its link
    }
    const auto left = patience.allowance(mark_patience::clock::now());
    CHECK(left <= mark_patience::most);
    CHECK(left > mark_patience::most / 2);
}

}  // namespace test_transport_shm_mark_patience
