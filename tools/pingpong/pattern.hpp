// Payloads that identify their message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace pingpong {

/// The seed of a payload's bytes; each message of a run has its own.
struct pattern_seed {
    std::uint64_t value;

    /// `phase`: which exchange of a run; `direction`: 0 to the listening side, 1 from it.
    constexpr pattern_seed(std::uint64_t phase, std::uint64_t direction, std::uint64_t message) noexcept
        : value(mix(mix(mix(phase) + direction) + message)) {}

    [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
        x += 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
    /// The eight bytes at offset 8 * `index`, as a little-endian number.
    [[nodiscard]] constexpr std::uint64_t word(std::uint64_t index) const noexcept {
        const std::uint64_t x = (value + index) * 0xd6e8feb86659fd93u;
        return x ^ (x >> 32);
    }
    [[nodiscard]] constexpr std::byte at(std::size_t offset) const noexcept {
        return static_cast<std::byte>(word(offset / 8) >> (offset % 8 * 8));
    }
};

inline void fill_pattern(std::span<std::byte> payload, pattern_seed seed) noexcept {
    const std::size_t words = payload.size() / 8;
    for (std::size_t i = 0; i < words; ++i) {
        std::uint64_t word = seed.word(i);
        if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
        std::memcpy(payload.data() + 8 * i, &word, 8);
    }
    for (std::size_t i = 8 * words; i < payload.size(); ++i) payload[i] = seed.at(i);
}

/// Where the first wrong byte is; the payload's size when all are right.
[[nodiscard]] inline std::size_t first_wrong(std::span<const std::byte> payload, pattern_seed seed) noexcept {
    const std::size_t words = payload.size() / 8;
    std::size_t at = 0;
    for (std::size_t i = 0; i < words; ++i, at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, payload.data() + at, 8);
        if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
        if (word != seed.word(i)) break;
    }
    while (at < payload.size() && payload[at] == seed.at(at)) ++at;
    return at;
}

}  // namespace pingpong
