// From how many uses on it pays to prepare memory: what copying, looking up and preparing cost, as measured.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/protocol/detail/usage_table.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
[[nodiscard]] inline const reuse_costs& measured_reuse_costs() noexcept {
    static const reuse_costs measured = [] {
        constexpr std::size_t few = 64;
        constexpr std::size_t many = 4096;
        constexpr std::size_t places = 4;
        static std::byte from[places][many];
        static std::byte to[places][many];
        std::memset(from, 1, sizeof from);
        std::memset(to, 2, sizeof to);
        const auto copy = [](std::size_t bytes) {
            return nanoseconds_of([bytes](unsigned i) noexcept {
                std::memcpy(to[i % places], from[i % places], bytes);
                asm volatile("" ::"r"(&to) : "memory");
            });
        };
        reuse_costs costs;
        const double short_one = copy(few);
        costs.copied_byte = std::max(0.0, (copy(many) - short_one) / static_cast<double>(many - few));
        costs.copy = std::max(0.0, short_one - costs.copied_byte * static_cast<double>(few));
        usage_table scratch;
        if (scratch.open()) {
            costs.bookkeeping = nanoseconds_of([&](unsigned i) noexcept {
                const usage_table::entry* e = scratch.use({from[i % places] + i % 16 * 64, 64});
                asm volatile("" ::"r"(e) : "memory");
            });
        }
        return costs;
    }();
    return measured;
}

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

    /// What copying and bookkeeping cost.
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

    // A class is judged by its shortest length.
    void recompute() noexcept {
        pays_from_ = never;
        for (unsigned c = classes; c-- > 0;) {
            const std::size_t shortest = c == 0 ? 0 : std::size_t{1} << (c - 1);
            const double saved = costs_.saved(shortest);
            uses_[c] = never;
            if (shortest < least_bytes || saved <= 0) continue;
            pays_from_ = shortest;
            if (!of_all_.known) {
                uses_[c] = first_uses;
                continue;
            }
            const double wanted = guessed_at * (of_class_[c].known ? of_class_[c] : of_all_).value / saved;
            if (wanted < usage_table::most_uses - 1)
                uses_[c] = std::max(least_uses, static_cast<std::uint32_t>(wanted) + 1);
        }
    }

    reuse_costs costs_{};
    std::array<average, classes> of_class_{};
    average of_all_{};
    std::array<std::uint32_t, classes> uses_{};
    std::size_t pays_from_ = never;
};

}  // namespace rdmacoro::detail
