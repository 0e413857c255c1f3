#include "spin.hpp"

#include "statistics.hpp"

#include "../../tools/pingpong/ticks.hpp"

#include <array>

namespace bench {

namespace {
constexpr std::uint64_t trial_turns = 200'000;
}

compute_clock::compute_clock(double ns_per_tick) : ns_per_tick_(ns_per_tick), ns_per_turn_(1) {
    ns_per_turn_ = measure(trial_turns) / static_cast<double>(trial_turns);
}

double compute_clock::measure(std::uint64_t turns) const {
    std::array<double, 9> times{};
    for (double& time : times) {
        const pingpong::tick_count begin = pingpong::now_ticks();
        compute(turns);
        time = static_cast<double>(pingpong::now_ticks() - begin) * ns_per_tick_;
    }
    return median(times);
}

}  // namespace bench
