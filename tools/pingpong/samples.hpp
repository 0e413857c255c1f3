// The times of single operations, and their statistics.
#pragma once

#include "ticks.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pingpong {

/// Memory for as many times as will be taken: taking one touches no new page and never allocates.
class sample_log {
public:
    void prepare(std::size_t most) {
        kept_.assign(most, 0);
        count_ = 0;
    }
    void put(tick_count ticks) noexcept { kept_[count_++] = ticks; }
    /// Adds the samples of another thread, once all are taken.
    void append(std::span<const tick_count> more) {
        kept_.resize(count_);
        kept_.insert(kept_.end(), more.begin(), more.end());
        count_ = kept_.size();
    }
    [[nodiscard]] std::span<tick_count> all() noexcept { return {kept_.data(), count_}; }

private:
    std::vector<tick_count> kept_;
    std::size_t count_ = 0;
};

/// In nanoseconds.
struct summary {
    double min = 0;
    double median = 0;
    double mean = 0;
    double p95 = 0;
    double p99 = 0;
    double p999 = 0;
    double max = 0;
};

/// Percentiles are nearest-rank: the smallest time that so many of the times do not exceed. `scale`: nanoseconds of
/// result for one tick of sample. Reorders the samples; there must be one.
[[nodiscard]] summary summarize(std::span<tick_count> samples, double scale);

}  // namespace pingpong
