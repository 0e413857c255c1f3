#include <rdmacoro/service/link_costs.hpp>

#include "support/catch.hpp"

namespace test_service_link_costs {

using namespace rdmacoro;

TEST_CASE("the cost of a message is that of its start where it is empty, and near a line where it is long") {
    constexpr linear_cost cost{4000, 13000, 3.89};
    STATIC_REQUIRE(cost.at(0) == 4000);
    // The example of the thesis, which measured 33 us there; without the third term 20.
    CHECK(cost.at(4096) > 29'500);
    CHECK(cost.at(4096) < 30'500);
    const double far = 1e9;
    CHECK(cost.at(far) < 4000 + 13000 + 3.89 * far);
    CHECK(cost.at(far) > 4000 + 12999 + 3.89 * far);
    STATIC_REQUIRE(linear_cost{}.at(0) == 0);
    STATIC_REQUIRE(linear_cost{0, 5, 1}.at(10) == 15);
}

TEST_CASE("the costs that come with the toolkit grow with the length, and shared memory is the faster link "
          "for short messages") {
    for (const link_costs& one : {shm_costs, tcp_costs}) {
        for (double bytes = 8; bytes < 1e8; bytes *= 2) {
            CHECK(one.message.at(bytes) > one.message.at(bytes / 2));
            CHECK(one.exchange.at(bytes) > one.exchange.at(bytes / 2));
            CHECK(one.next.at(bytes) >= one.next.at(bytes / 2));
        }
        CHECK(one.touch_ns_per_byte > 0);
    }
    CHECK(shm_costs.message.at(1024) < tcp_costs.message.at(1024));
}

}  // namespace test_service_link_costs
