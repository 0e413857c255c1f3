// call_history: what became of a peer's calls that are not here any more, or not yet.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// By the numbers of calls, which the peer gives in order: of the last `window` of them, and which older ones never came. Those that a stopped
/// peer missed follow each other: they are kept as gaps, 1,024 at most, and the oldest are forgotten first. In bounded memory, and in constant
/// time but for those, whatever the peer says.
class call_history {
public:
    enum class fate : std::uint8_t {
        unknown,   ///< its request has not been received
        ended,     ///< it was answered, or needs no answer
        canceled,  ///< before its request was received
        answered,  ///< and its cancellation was answered
        old,       ///< it has come, too long ago; never set
    };
    static constexpr std::size_t window = 4096;

    [[nodiscard]] fate of(std::uint64_t call) const noexcept {
        const std::uint64_t number = call & number_bits;
        const std::uint64_t behind = (newest_ - number) & number_bits;
        if (none_ || behind > number_bits / 2) return fate::unknown;
        if (behind >= window) return of_old(number);
        return static_cast<fate>((words_[word(number)] >> shift(number)) & 3);
    }
    void set(std::uint64_t call, fate to) noexcept {
        const std::uint64_t number = call & number_bits;
        const std::uint64_t behind = (newest_ - number) & number_bits;
        if (none_ || behind > number_bits / 2) {
            advance(number);
        } else if (behind >= window) {
            return set_old(number, to);
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
    /// Of a call that is older than the window: its own fate, where it was set since, or whether it is in a gap.
    [[nodiscard]] RDMACORO_DECL fate of_old(std::uint64_t number) const noexcept;
    RDMACORO_DECL void set_old(std::uint64_t number, fate to) noexcept;
    /// Nothing is known of the numbers up to this one.
    void advance(std::uint64_t number) noexcept {
        if (!none_ && ((newest_ + 1) & number_bits) == number && !leaves_unknown(number)) [[likely]] {
            newest_ = number;
            words_[word(number)] &= ~(std::uint64_t{3} << shift(number));
            return;
        }
        skip_to(number);
    }
    /// Whether the number that leaves the window for this one has not come.
    [[nodiscard]] bool leaves_unknown(std::uint64_t number) const noexcept {
        return ((words_[word(number)] >> shift(number)) & 3) == 0;
    }
    RDMACORO_DECL void skip_to(std::uint64_t number) noexcept;
    /// These have not come, and follow those of the last gap.
    void add_gap(std::uint64_t first, std::uint64_t last) noexcept;

    struct gap {
        std::uint64_t first, last;
    };
    struct old_call {
        std::uint64_t number;
        fate what;
    };
    static constexpr std::size_t most_gaps = 1024;
    static constexpr std::size_t most_old =
        64;  // canceled while they were being received, which few are at a time

    /// False: it is in none.
    [[nodiscard]] bool take_from_gap(std::uint64_t number) noexcept;
    [[nodiscard]] std::size_t gap_of(std::uint64_t number) const noexcept;

    /// Numbers begin anywhere: of those before the first that came none has.
    [[nodiscard]] bool is_before_first(std::uint64_t number) const noexcept {
        return !gone_round_ && ((newest_ - number) & number_bits) > ((newest_ - first_) & number_bits);
    }

    bool none_ = true;
    bool gone_round_ = false;  // nothing is before the first any more
    std::uint64_t first_ = 0;
    std::uint64_t newest_ = 0;
    std::uint64_t words_[window / in_word] = {};
    plain_vector<gap> gaps_;  // the oldest first
    plain_vector<old_call> old_;
    std::size_t next_old_ = 0;  // to be replaced, where there are `most_old`
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/call_history.ipp>
#endif
