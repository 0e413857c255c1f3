// call_history: what became of a peer's calls that are not here any more, or not yet.
#pragma once

#include <rdmacoro/service/detail/call_wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace rdmacoro::detail {

/// By the numbers of calls, which the peer gives in order: of the last `window` of them. In constant time and memory, whatever the peer says.
class call_history {
public:
    enum class fate : std::uint8_t {
        unknown,   ///< its request has not been received
        ended,     ///< it was answered, or needs no answer
        canceled,  ///< before its request was received
        answered,  ///< and its cancellation was answered
        old,       ///< it is too long ago; never set
    };
    static constexpr std::size_t window = 4096;

    [[nodiscard]] fate of(std::uint64_t call) const noexcept {
        const std::uint64_t number = call & number_bits;
        const std::uint64_t behind = (newest_ - number) & number_bits;
        if (none_ || behind > number_bits / 2) return fate::unknown;
        if (behind >= window) return fate::old;
        return static_cast<fate>((words_[word(number)] >> shift(number)) & 3);
    }
    void set(std::uint64_t call, fate to) noexcept {
        const std::uint64_t number = call & number_bits;
        const std::uint64_t behind = (newest_ - number) & number_bits;
        if (none_ || behind > number_bits / 2) {
            advance(number);
        } else if (behind >= window) {
            return;
        }
        std::uint64_t& in = words_[word(number)];
        in = (in & ~(std::uint64_t{3} << shift(number))) | (static_cast<std::uint64_t>(to) << shift(number));
    }

private:
    // Numbers go round: what is up to half of all behind is older.
    static constexpr std::uint64_t number_bits = call_number_mask & ~caller_writes_bit;
    static constexpr std::size_t in_word = 32;
    static_assert((number_bits + 1) % window == 0 && window % in_word == 0);

    [[nodiscard]] static constexpr std::size_t word(std::uint64_t number) noexcept {
        return number % window / in_word;
    }
    [[nodiscard]] static constexpr unsigned shift(std::uint64_t number) noexcept {
        return static_cast<unsigned>(number % in_word) * 2;
    }
    /// Nothing is known of the numbers up to this one.
    void advance(std::uint64_t number) noexcept {
        if (none_ || ((number - newest_) & number_bits) >= window) {
            std::fill(std::begin(words_), std::end(words_), 0);
            newest_ = number;
            none_ = false;
        }
        while (newest_ != number) {
            newest_ = (newest_ + 1) & number_bits;
            words_[word(newest_)] &= ~(std::uint64_t{3} << shift(newest_));
        }
    }

    bool none_ = true;
    std::uint64_t newest_ = 0;
    std::uint64_t words_[window / in_word] = {};
};

}  // namespace rdmacoro::detail
