// The members of an aggregate, in order, without help from its author.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// Converts to the type of any member, in unevaluated expressions.
struct any_member {
    template <class T>
    operator T() const noexcept;  // NOLINT: implicit, as a member is initialized
};

inline constexpr std::size_t most_members = 16;

template <class T, std::size_t... I>
constexpr bool initialized_by(std::index_sequence<I...>) noexcept {
    return requires { T{(static_cast<void>(I), any_member{})...}; };
}

/// How many members `T` has, `most_members` at most: as many as it can be initialized with; 0 also where that is not known. Arrays of C
/// count as their elements.
template <class T, std::size_t N = most_members>
constexpr std::size_t member_count() noexcept {
    if constexpr (N == 0 || std::is_empty_v<T>) {
        return 0;
    } else if constexpr (initialized_by<T>(std::make_index_sequence<N>())) {
        return N;
    } else {
        return member_count<T, N - 1>();
    }
}

/// Whether the members of the aggregate `T` can be told: there are 16 at most, each may be assigned, and none has a constructor that takes
/// anything at all, which hides how many there are.
template <class T>
inline constexpr bool has_members =
    std::is_aggregate_v<T> && std::is_class_v<T> && std::is_move_assignable_v<T> &&
    (std::is_empty_v<T> || member_count<T>() != 0) &&
    !initialized_by<T>(std::make_index_sequence<most_members + 1>());

/// References to the members of `whole`.
template <class T>
constexpr auto members_of(T& whole) noexcept {
    constexpr std::size_t count = member_count<std::remove_const_t<T>>();
    if constexpr (count == 0) {
        return std::tuple<>();
    } else if constexpr (count == 1) {
        auto& [a] = whole;
        return std::tie(a);
    } else if constexpr (count == 2) {
        auto& [a, b] = whole;
        return std::tie(a, b);
    } else if constexpr (count == 3) {
        auto& [a, b, c] = whole;
        return std::tie(a, b, c);
    } else if constexpr (count == 4) {
        auto& [a, b, c, d] = whole;
        return std::tie(a, b, c, d);
    } else if constexpr (count == 5) {
        auto& [a, b, c, d, e] = whole;
        return std::tie(a, b, c, d, e);
    } else if constexpr (count == 6) {
        auto& [a, b, c, d, e, f] = whole;
        return std::tie(a, b, c, d, e, f);
    } else if constexpr (count == 7) {
        auto& [a, b, c, d, e, f, g] = whole;
        return std::tie(a, b, c, d, e, f, g);
    } else if constexpr (count == 8) {
        auto& [a, b, c, d, e, f, g, h] = whole;
        return std::tie(a, b, c, d, e, f, g, h);
    } else if constexpr (count == 9) {
        auto& [a, b, c, d, e, f, g, h, i] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i);
    } else if constexpr (count == 10) {
        auto& [a, b, c, d, e, f, g, h, i, j] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i, j);
    } else if constexpr (count == 11) {
        auto& [a, b, c, d, e, f, g, h, i, j, k] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k);
    } else if constexpr (count == 12) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
    } else if constexpr (count == 13) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
    } else if constexpr (count == 14) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
    } else if constexpr (count == 15) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
    } else {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = whole;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
    }
}

/// The types of the members, as a tuple of references.
template <class T>
using member_types = decltype(members_of(std::declval<T&>()));

}  // namespace rdmacoro::detail
