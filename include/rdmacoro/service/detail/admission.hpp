// admission: which shapes of collectives an algorithm carries.
#pragma once

#include <rdmacoro/service/algorithm.hpp>

#include <bit>
#include <cstddef>
#include <string_view>

namespace rdmacoro::detail {

/// The abilities of an algorithm.
enum class can : unsigned {
    order = 1,      ///< contributions are combined in the order of ranks
    repeat = 2,     ///< grouped alike whatever the length: `reproducible`
    uneven = 4,     ///< blocks of several lengths
    any_size = 8,   ///< numbers of ranks that are no power of two
    one_host = 16,  ///< useful where all ranks are on one host, or each on its own
    no_part = 32,   ///< does not cut the elements into parts for the ranks
    in_turn = 64,   ///< useful where ranks of one host do not follow each other
    input = 128,    ///< reads contributions where the caller has them: `algorithm::from_input`
    fold = 256,     ///< contributions are combined one after the other, from rank 0 on
};
[[nodiscard]] constexpr unsigned operator|(can a, can b) noexcept {
    return static_cast<unsigned>(a) | static_cast<unsigned>(b);
}
[[nodiscard]] constexpr unsigned operator|(unsigned a, can b) noexcept {
    return a | static_cast<unsigned>(b);
}
[[nodiscard]] constexpr bool has(unsigned all, can one) noexcept {
    return (all & static_cast<unsigned>(one)) != 0;
}

inline constexpr unsigned everything =
    can::order | can::repeat | can::uneven | can::any_size | can::one_host | can::no_part | can::in_turn;
/// The abilities of most algorithms that cut and combine.
inline constexpr unsigned reduces_parts = can::uneven | can::any_size | can::one_host | can::in_turn;
[[nodiscard]] constexpr unsigned all_but(can one) noexcept {
    return everything & ~static_cast<unsigned>(one);
}

template <std::size_t Most, unsigned Can>
constexpr bool admits_shape(const collective_shape& s) noexcept {
    if (s.ranks == 0 || s.hosts == 0 || s.bytes > Most) return false;
    if (s.in_order && !has(Can, can::order)) return false;
    if (s.left_fold && !has(Can, can::fold)) return false;
    if (s.reproducible && !has(Can, can::repeat)) return false;
    if (s.uneven && !has(Can, can::uneven)) return false;
    if (!std::has_single_bit(s.ranks) && !has(Can, can::any_size)) return false;
    if ((s.hosts == 1 || s.hosts == s.ranks) && !has(Can, can::one_host)) return false;
    if (s.in_turn && !has(Can, can::in_turn)) return false;
    return has(Can, can::no_part) || s.elements >= s.ranks;
}

template <class Limit, unsigned Can>
[[nodiscard]] constexpr algorithm make_algorithm(std::string_view name, task<> (*run)(collective&)) noexcept {
    return {name, &admits_shape<Limit::bytes, Can>, run, has(Can, can::input), {}};
}

/// The shape of a step of a collective, of `times` as many elements, or a `part`-th of them. Every rank knows the lengths of all blocks, where
/// they differ.
[[nodiscard]] constexpr collective_shape step_shape(collective_shape of, collective_kind kind, unsigned times,
                                                    unsigned part = 1) noexcept {
    const bool combines = kind == collective_kind::reduce || kind == collective_kind::reduce_scatter;
    of.kind = kind;
    of.uneven = part != 1 || (of.uneven && !combines);
    of.elements = of.elements / part * times;
    of.bytes = of.bytes / part * times;
    if (!combines) of.in_order = of.reproducible = of.left_fold = false;
    return of;
}

/// A collective as two others, one after the other. `FirstOfAll`, `SecondOfAll`: the step is of all ranks' elements;
/// `OfParts`: of a part for each rank.
template <class Limit, collective_kind A, class First, bool FirstOfAll, collective_kind B, class Second,
          bool SecondOfAll, bool OfParts = false>
struct two_steps {
    static constexpr algorithm first = First::template of<A>();
    static constexpr algorithm second = Second::template of<B>();
    static_assert(!first.name.empty() && !second.name.empty(), "an algorithm does not carry its step");

    static constexpr bool admits(const collective_shape& s) {
        if (s.ranks == 0 || s.bytes > Limit::bytes || (OfParts && s.elements < s.ranks)) return false;
        const unsigned part = OfParts ? s.ranks : 1;
        return first.admits(step_shape(s, A, FirstOfAll ? s.ranks : 1, part)) &&
               second.admits(step_shape(s, B, SecondOfAll ? s.ranks : 1, part));
    }
    template <auto Run>
    [[nodiscard]] static constexpr algorithm make(std::string_view name, bool from_input = false) noexcept {
        return {name,
                &admits,
                [](collective& c) { return Run(c, first.run, second.run); },
                from_input,
                {first.name, second.name}};
    }
};

/// The same algorithm, for those shapes alone that `Rule::admits`, too.
template <algorithm (*Of)() noexcept, class Rule>
[[nodiscard]] constexpr algorithm restricted() noexcept {
    algorithm one = Of();
    if (!one.name.empty())
        one.admits = [](const collective_shape& s) {
            return s.ranks != 0 && Rule::admits(s) && Of().admits(s);
        };
    return one;
}

}  // namespace rdmacoro::detail
