// Bodies of detail/reuse_costs.hpp.
#pragma once

#include <rdmacoro/protocol/detail/reuse_costs.hpp>

#include <cstring>

namespace rdmacoro::detail {

RDMACORO_DECL const reuse_costs& measured_reuse_costs() noexcept {
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

// A class is judged by its shortest length.
RDMACORO_DECL void reuse_threshold::recompute() noexcept {
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

}  // namespace rdmacoro::detail
