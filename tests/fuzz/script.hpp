#pragma once

// The input of a fuzz target, read as the decisions of a script.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace rdmacoro::test {

inline void demand(bool holds) {
    if (!holds) std::abort();
}

/// Gives zeros after its end.
class script {
public:
    script(const std::uint8_t* bytes, std::size_t count) : at_(bytes), left_(count) {}

    [[nodiscard]] bool over() const { return left_ == 0; }
    std::uint8_t byte() {
        if (left_ == 0) return 0;
        --left_;
        return *at_++;
    }
    /// Mostly small, sometimes anything.
    std::uint64_t number() {
        const std::uint8_t width = byte();
        if (width < 192) return width;
        std::uint64_t value = 0;
        for (int i = 0; i < (width & 7) + 1; ++i) value = value << 8 | byte();
        return value;
    }
    /// From nothing to some 32,000, about as often of a few bytes, of hundreds and of thousands.
    std::size_t length() {
        const std::uint8_t drawn = byte();
        return (std::size_t{drawn} & 63) << (drawn >> 6) * 3;
    }
    /// A payload; the script's own bytes first, zeros behind them.
    std::vector<std::byte> bytes() {
        std::vector<std::byte> made(number() % 20'000);
        for (std::size_t i = 0; i < made.size() && i < 48; ++i) made[i] = static_cast<std::byte>(byte());
        return made;
    }

private:
    const std::uint8_t* at_;
    std::size_t left_;
};

}  // namespace rdmacoro::test
