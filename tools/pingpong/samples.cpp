#include "samples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pingpong {

summary summarize(std::span<tick_count> samples, double scale) {
    std::sort(samples.begin(), samples.end());
    const auto ranked = [&](double part) {
        const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(samples.size())));
        return scale * static_cast<double>(samples[std::clamp<std::size_t>(rank, 1, samples.size()) - 1]);
    };
    const tick_count sum = std::accumulate(samples.begin(), samples.end(), tick_count{0});
    return {.min = ranked(0),
            .median = ranked(0.5),
            .mean = scale * static_cast<double>(sum) / static_cast<double>(samples.size()),
            .p95 = ranked(0.95),
            .p99 = ranked(0.99),
            .p999 = ranked(0.999),
            .max = ranked(1)};
}

}  // namespace pingpong
