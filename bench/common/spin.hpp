// Computation of a known length that calls nothing and touches no memory.
#pragma once

#include <cstdint>

namespace bench {

/// So many turns of arithmetic, each of which needs the one before.
inline void compute(std::uint64_t turns) noexcept {
    std::uint64_t x = turns;
    for (; turns != 0; --turns) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(x));
    }
}

/// The time of a turn. A computation is a number of turns, not a time: when the processor is taken away from it, or slowed
/// down by other load, it takes longer, as a program's own computation would.
class compute_clock {
public:
    /// Takes some milliseconds.
    explicit compute_clock(double ns_per_tick);

    [[nodiscard]] std::uint64_t turns_for(double ns) const noexcept {
        return static_cast<std::uint64_t>(ns / ns_per_turn_ + 0.5);
    }
    /// How long so many turns take now, in ns: a median.
    [[nodiscard]] double measure(std::uint64_t turns) const;

private:
    double ns_per_tick_;
    double ns_per_turn_;
};

}  // namespace bench
