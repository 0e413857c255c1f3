// From how many uses on it pays to prepare memory, by the measured costs of copying, looking up and preparing.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/detail/usage_table.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace rdmacoro::detail {

/// In nanoseconds.
struct reuse_costs {
    double copy = 0;         ///< of a message's bytes to staging memory: of any number of them,
    double copied_byte = 0;  ///< and of each
    double bookkeeping = 0;  ///< of watching one message

    [[nodiscard]] double saved(std::size_t bytes) const noexcept {
        return copy + copied_byte * static_cast<double>(bytes) - bookkeeping;
    }
};

/// The time of one call, the least of several tries.
template <class Call>
[[nodiscard]] double nanoseconds_of(Call call) noexcept {
    constexpr unsigned tries = 8;
    constexpr unsigned calls = 128;
    double least = std::numeric_limits<double>::max();
    for (unsigned n = 0; n < tries; ++n) {
        const auto before = std::chrono::steady_clock::now();
        for (unsigned i = 0; i < calls; ++i) call(i);
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
        least = std::min(least, took.count() / calls);
    }
    return least;
}

/// Of this process; measured at the first call, which takes some tens of microseconds.
[[nodiscard]] RDMACORO_DECL const reuse_costs& measured_reuse_costs() noexcept;

/// Preparing memory pays after n > R / (C - V) uses: R for preparing it, C for a copy, V for bookkeeping. That it will come
/// to so many is a guess, made at a quarter of them.
class reuse_threshold {
public:
    static constexpr std::size_t least_bytes = 64;  ///< shorter messages are never watched
    static constexpr std::size_t most_bytes = std::size_t{1} << 30;
    static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::uint32_t least_uses = 2;
    static constexpr std::uint32_t first_uses = 16;  ///< while nothing is known of R
    static constexpr double guessed_at = 0.25;

    /// Sets the costs of copying and bookkeeping.
    void set_costs(const reuse_costs& costs) noexcept {
        costs_ = costs;
        recompute();
    }
    [[nodiscard]] const reuse_costs& costs() const noexcept { return costs_; }

    /// Preparing memory of this class of length took so long.
    void prepared(unsigned length_class, duration took) noexcept {
        const double now = std::max(0.0, static_cast<double>(took.count()));
        for (average* a : {&of_class_[length_class], &of_all_}) {
            a->value = a->known ? a->value + (now - a->value) / 8 : now;
            a->known = true;
        }
        recompute();
    }

    /// The use at which memory of this class of length is prepared.
    [[nodiscard]] std::uint32_t uses(unsigned length_class) const noexcept { return uses_[length_class]; }
    /// From how many bytes on watching a message costs less than it may save.
    [[nodiscard]] std::size_t pays_from() const noexcept { return pays_from_; }

private:
    struct average {
        double value = 0;
        bool known = false;
    };
    static constexpr unsigned classes = usage_table::length_class(most_bytes) + 1;

    void recompute() noexcept;

    reuse_costs costs_{};
    std::array<average, classes> of_class_{};
    average of_all_{};
    std::array<std::uint32_t, classes> uses_{};
    std::size_t pays_from_ = never;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/reuse_costs.ipp>
#endif
