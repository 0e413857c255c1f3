#include <rdmacoro/protocol/detail/reuse_costs.hpp>

#include "support/catch.hpp"

namespace test_protocol_detail_reuse_costs {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("the threshold follows what preparing, copying and bookkeeping cost") {
    reuse_threshold t;
    t.set_costs({.copy = 0, .copied_byte = 1, .bookkeeping = 100});
    const auto length = [](std::size_t bytes) { return usage_table::length_class(bytes); };
    CHECK(t.pays_from() == 128);  // 64 bytes cost less than the bookkeeping
    CHECK(t.uses(length(64)) == reuse_threshold::never);
    CHECK(t.uses(length(128)) == reuse_threshold::first_uses);
    CHECK(t.uses(length(1000)) == reuse_threshold::first_uses);
    t.prepared(length(1000), std::chrono::nanoseconds(4 * 20 * 412));
    CHECK(t.uses(length(1000)) == 21);
    CHECK(t.uses(length(512)) == 21);
    CHECK(t.uses(length(200)) == 1 + 20 * 412 / 28);  // not measured at this length: as elsewhere
    CHECK(t.uses(length(4096)) == 1 + 20 * 412 / 3996);
    CHECK(t.uses(length(64)) == reuse_threshold::never);
    t.prepared(length(4096), std::chrono::nanoseconds(0));
    CHECK(t.uses(length(4096)) == reuse_threshold::least_uses);
    CHECK(t.uses(length(1000)) == 21);
    t.prepared(length(1000), std::chrono::hours(1));
    CHECK(t.uses(length(1000)) == reuse_threshold::never);
    // Where a copy is never dearer, nothing takes part.
    t.set_costs({.copy = 0, .copied_byte = 0, .bookkeeping = 1});
    CHECK(t.pays_from() == reuse_threshold::never);
}

TEST_CASE("the costs of this process are measured once, and are costs") {
    const reuse_costs& costs = measured_reuse_costs();
    CHECK(costs.copy >= 0);
    CHECK(costs.copied_byte > 0);
    CHECK(costs.bookkeeping > 0);
    CHECK(&costs == &measured_reuse_costs());
}

}  // namespace test_protocol_detail_reuse_costs
