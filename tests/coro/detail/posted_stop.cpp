#include <rdmacoro/coro/detail/posted_stop.hpp>

#include "support/catch.hpp"

namespace test_coro_detail_posted_stop {

using namespace rdmacoro;

TEST_CASE("a posted stop request comes in the next turn, once, and not after it was withdrawn") {
    scheduler on;
    local_stop_source asked;
    local_stop_source spared;
    detail::posted_stop first;
    {
        detail::posted_stop withdrawn;
        detail::posted_stop destroyed;
        first.post(on, asked);
        withdrawn.post(on, spared);
        destroyed.post(on, spared);
        withdrawn.withdraw();
        CHECK_FALSE(asked.stop_requested());
    }
    on.turn();
    CHECK(asked.stop_requested());
    CHECK_FALSE(spared.stop_requested());
    first.withdraw();
}

}  // namespace test_coro_detail_posted_stop
