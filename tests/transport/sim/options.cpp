#include <rdmacoro/transport/sim/options.hpp>

#include "support/catch.hpp"

namespace test_transport_sim_options {

using namespace rdmacoro;

// The defaults are a network on which nothing goes wrong by itself.
static_assert(sim_faults{}.no_room == 0 && sim_faults{}.no_resources == 0 && sim_faults{}.delayed == 0 &&
              sim_faults{}.dropped == 0);
static_assert(sim_world_options{}.violations_are_fatal && !sim_world_options{}.keeps_log);
static_assert(sim_options{}.world == nullptr && sim_options{}.room == sim_options::unlimited);
static_assert(sim_options::usual.one_sided && sim_options::usual.one_sided_offloaded);
static_assert(sim_options::usual.segment_bytes <= sim_options::usual.max_message);

TEST_CASE("an untouched count is zero") {
    const sim_counts counts;
    CHECK(counts.messages == 0);
    CHECK(counts.drops == 0);
    CHECK(counts.retries == 0);
}

}  // namespace test_transport_sim_options
