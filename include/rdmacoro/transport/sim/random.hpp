// The simulation's own random numbers: the same on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace rdmacoro {

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class sim_random {
public:
    /// Equal seeds give equal numbers.
    explicit constexpr sim_random(std::uint64_t seed) noexcept : state_(seed) {}

    /// The next number, of 64 bits.
    [[nodiscard]] constexpr std::uint64_t next() noexcept {
        state_ += 0x9e3779b97f4a7c15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    /// From 0 to `bound` - 1; 0 for a bound of 0. The bias is below `bound` / 2^64.
    [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound) noexcept {
        return bound == 0 ? 0 : next() % bound;
    }

    /// True in `per_million` of a million cases. Draws nothing where the answer is certain.
    [[nodiscard]] constexpr bool chance(std::uint32_t per_million) noexcept {
        return per_million != 0 && below(1'000'000) < per_million;
    }

private:
    std::uint64_t state_;
};

}  // namespace rdmacoro
