#include "../../tools/tune/estimate.hpp"

#include "support/catch.hpp"

#include <cstddef>
#include <vector>

namespace test_tools_estimate {

TEST_CASE("tune: a further message has its cost where single messages were disturbed in more than a quarter "
          "of the rounds") {
    // In nanoseconds: 8 messages take 800, and one of them 100.
    const std::vector<double> several{800, 800, 2500, 800, 800, 800, 900, 800};
    const std::vector<double> one{100, 3000, 100, 950, 100, 4000, 100, 100};
    std::vector<double> differences;
    for (std::size_t round = 0; round < several.size(); ++round)
        differences.push_back(several[round] - one[round]);
    REQUIRE(tune::quarter_of(differences) < 0);
    CHECK(tune::further_message(several, one, 8) == Approx(100));
}

TEST_CASE("tune: a quarter of the times are no longer than the figure of all") {
    CHECK(tune::quarter_of({7}) == 7);
    CHECK(tune::quarter_of({9, 1, 5, 3}) == 3);
    CHECK(tune::quarter_of({8, 7, 6, 5, 4, 3, 2, 1}) == 3);
}

}  // namespace test_tools_estimate
