#include <rdmacoro/transport/sim/random.hpp>

#include "support/catch.hpp"

namespace test_transport_sim_random {

using rdmacoro::sim_random;

// The numbers of splitmix64 for seed 1234567, as its authors publish them: schedules that are written down stay valid.
static_assert([] {
    sim_random random(1234567);
    return random.next() == 6457827717110365317u && random.next() == 3203168211198807973u;
}());
static_assert(sim_random(1).below(0) == 0);

TEST_CASE("a seed gives one sequence, and below stays below") {
    sim_random one(7);
    sim_random other(7);
    for (int n = 0; n < 1000; ++n) {
        const auto drawn = one.below(10);
        CHECK(drawn < 10);
        CHECK(drawn == other.below(10));
    }
    CHECK(one.next() == other.next());
}

TEST_CASE("chance draws nothing where the answer is certain, and is about right elsewhere") {
    sim_random random(3);
    sim_random untouched(3);
    CHECK_FALSE(random.chance(0));
    CHECK(random.next() == untouched.next());
    unsigned happened = 0;
    for (int n = 0; n < 10'000; ++n) happened += random.chance(100'000) ? 1u : 0u;
    CHECK(happened > 800);
    CHECK(happened < 1200);
    CHECK(random.chance(1'000'000));
}

}  // namespace test_transport_sim_random
