#pragma once

// Bytes that say where they belong, written and checked many at a time: suites that are not optimized, or watched by a
// sanitizer, move some hundred megabytes of them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace rdmacoro::test {

/// The byte at `offset` of pattern `seed`. It differs from that of another seed or place nearby.
inline std::byte pattern_at(std::size_t offset, std::uint64_t seed) noexcept {
    return static_cast<std::byte>((offset * 131 + (offset >> 8) * 17 + (offset >> 16) * 7 + seed * 29 + 1) &
                                  0xff);
}

namespace of_pattern {
/// Within 256 bytes of one pattern, bytes follow each other as the multiples of 131 do: each such run is a part of this.
inline const std::array<std::byte, 512>& pattern_row() noexcept {
    static const auto row = [] {
        std::array<std::byte, 512> made{};
        for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>((i * 131) & 0xff);
        return made;
    }();
    return row;
}

/// Calls `visit(place, bytes of the pattern from there)` until it answers false; whether it never did.
template <class Visit>
bool each_run(std::size_t offset, std::size_t bytes, std::uint64_t seed, Visit visit) {
    constexpr std::size_t inverse = 43;  // 43 * 131 is 1 modulo 256
    for (std::size_t at = 0; at < bytes;) {
        const std::size_t place = offset + at;
        const std::size_t run = std::min(256 - (place & 255), bytes - at);
        const std::size_t first = (place >> 8) * 17 + (place >> 16) * 7 + seed * 29 + 1;
        const auto row = std::span(pattern_row()).subspan((place + first * inverse) & 255, run);
        if (!visit(at, row)) return false;
        at += run;
    }
    return true;
}
}  // namespace of_pattern

/// Writes pattern `seed` from its byte `offset` on.
inline void write_pattern(std::span<std::byte> into, std::size_t offset, std::uint64_t seed) noexcept {
    of_pattern::each_run(offset, into.size(), seed, [&](std::size_t at, std::span<const std::byte> row) {
        std::memcpy(into.data() + at, row.data(), row.size());
        return true;
    });
}
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed = 1) {
    std::vector<std::byte> made(bytes);
    write_pattern(made, 0, seed);
    return made;
}
/// Whether these are the bytes of pattern `seed` from its byte `offset` on.
inline bool is_pattern(std::span<const std::byte> bytes, std::uint64_t seed,
                       std::size_t offset = 0) noexcept {
    return of_pattern::each_run(offset, bytes.size(), seed,
                                [&](std::size_t at, std::span<const std::byte> row) {
                                    return std::memcmp(bytes.data() + at, row.data(), row.size()) == 0;
                                });
}

/// Whether all bytes are `value`.
inline bool all_are(std::byte value, std::span<const std::byte> bytes) noexcept {
    return bytes.empty() ||
           (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}
/// Whether both hold the same.
inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace rdmacoro::test
