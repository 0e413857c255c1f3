// collective_options: what a call of a collective says beside its memory.
#pragma once

#include <rdmacoro/service/collective.hpp>
#include <rdmacoro/service/collectives.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace rdmacoro {

/// The rank that gives or gets, of `broadcast`, `scatter`, `gather` and `reduce`.
struct root {
    unsigned rank = 0;  ///< in the group
    /// That rank.
    constexpr explicit root(unsigned which) noexcept : rank(which) {}
};

/// Instead of a contribution: it lies where the result will be.
struct in_place_t {};
inline constexpr in_place_t in_place{};  ///< `g.allreduce(rc::in_place, x, std::plus<>{})`

/// For reductions and scans: the same bits for the same number of ranks, whatever the length and the timing. All ranks say so, or none.
struct reproducible_t {};
inline constexpr reproducible_t reproducible{};  ///< `g.allreduce(mine, x, std::plus<>{}, rc::reproducible)`

/// For one call: its algorithms. The first that admits it carries it; where none does, it goes by the group's choice. The environment
/// comes before it. All ranks say the same.
template <class... Algorithms>
struct use_t {};
/// `g.allreduce(mine, x, std::plus<>{}, rc::use<rc::ring<>>)`. An algorithm that is none of the collective's does not compile.
template <class... Algorithms>
inline constexpr use_t<Algorithms...> use{};

/// As `use`, by a name that is known when the program runs: `g.barrier(rc::algorithm_named{"spanning_tree"})`. A name that is none of the
/// collective's is refused as `errc::invalid_argument`, as a wrong root is. The characters are borrowed until the call has begun.
struct algorithm_named {
    std::string_view name{};  ///< as `explain_collectives` prints it
};

/// Of `group::split`: a rank that will be in no group.
inline constexpr std::int64_t no_color = -1;

namespace detail {

/// That it has none of that name, and which it has.
[[nodiscard]] std::string unknown_algorithm_text(collective_kind kind, std::string_view name);

template <collective_kind K, class... As>
[[nodiscard]] constexpr std::span<const algorithm> asked_algorithms(use_t<As...>) noexcept {
    static_assert(sizeof...(As) != 0, "use<...> names at least one algorithm");
    return algorithm_list<K, As...>::table;
}

template <collective_kind K, class Option>
void apply_option(collective_call& call, const Option& option) {
    if constexpr (std::is_same_v<Option, reproducible_t>) {
        static_assert(K >= collective_kind::reduce,
                      "reproducible is an option of reduce, allreduce, reduce_scatter, scan and exscan");
        call.reproducible = true;
    } else if constexpr (std::is_same_v<Option, algorithm_named>) {
        if (const algorithm* const found = find_algorithm(K, option.name)) {
            call.asked = {found, 1};
        } else {
            call.unknown_algorithm = option.name;
        }
    } else {
        static_assert(
            requires { detail::asked_algorithms<K>(option); },
            "options of a collective are use<...>, algorithm_named and, of reductions and scans, "
            "reproducible");
        call.asked = detail::asked_algorithms<K>(option);
    }
}

}  // namespace detail
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/collective_options.ipp>
#endif
