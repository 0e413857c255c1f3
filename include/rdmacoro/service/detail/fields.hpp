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
/// To that of any base class of `Whole`.
template <class Whole>
struct any_base {
    template <class T>
        requires(std::is_base_of_v<T, Whole> && !std::is_same_v<T, Whole>)
    operator T() const noexcept;  // NOLINT: implicit, as a base is initialized
};
/// To that of any union.
struct any_union {
    template <class T>
        requires std::is_union_v<T>
    operator T() const noexcept;  // NOLINT: implicit, as a member is initialized
};

inline constexpr std::size_t most_members = 32;
/// Members that may be told, where each element of an array of C counts as one.
inline constexpr std::size_t most_elements = 512;

template <class T, class First, std::size_t... I>
constexpr bool initialized_by(std::index_sequence<I...>) noexcept {
    if constexpr (std::is_void_v<First>) {
        return requires { T{(static_cast<void>(I), any_member{})...}; };
    } else {
        return requires { T{(static_cast<void>(I), any_member{})..., First{}}; };
    }
}
/// Whether `T` can be initialized by so many values, of which `Last`, where it is one, is another one behind them.
template <class T, std::size_t N, class Last = void>
constexpr bool initialized_by() noexcept {
    return initialized_by<T, Last>(std::make_index_sequence<N>());
}
template <class T, std::size_t... I, std::size_t... J>
constexpr bool has_braces_among(std::index_sequence<I...>, std::index_sequence<J...>) noexcept {
    return requires {
        T{(static_cast<void>(I), any_member{})..., {}, (static_cast<void>(J), any_member{})...};
    };
}
/// Whether `T` can be initialized by so many values, a pair of braces, which stands for a whole member, and so many values.
template <class T, std::size_t Before, std::size_t After>
constexpr bool has_braces_among() noexcept {
    return has_braces_among<T>(std::make_index_sequence<Before>(), std::make_index_sequence<After>());
}

/// The largest number from `Low` on, and below `High`, by which `T` can be initialized. Precondition: `Low` is one.
template <class T, std::size_t Low, std::size_t High>
constexpr std::size_t most_initializers() noexcept {
    if constexpr (High - Low == 1) {
        return Low;
    } else {
        constexpr std::size_t middle = Low + (High - Low) / 2;
        if constexpr (initialized_by<T, middle>()) {
            return most_initializers<T, middle, High>();
        } else {
            return most_initializers<T, Low, middle>();
        }
    }
}
/// By how many values `T` can be initialized, where braces around arrays of C are left out: each element of these counts.
template <class T, std::size_t Tried = 1>
constexpr std::size_t element_count() noexcept {
    if constexpr (Tried <= most_elements && initialized_by<T, Tried>()) {
        return element_count<T, 2 * Tried>();
    } else {
        return most_initializers<T, Tried / 2, Tried>();
    }
}

/// How many of the `All` values initialize the member that number `At` is the first of: more than 1 of an array of C. From `Low` on, and
/// `High` at most.
template <class T, std::size_t All, std::size_t At, std::size_t Low, std::size_t High>
constexpr std::size_t member_width() noexcept {
    if constexpr (Low >= High) {
        return High;
    } else {
        constexpr std::size_t middle = Low + (High - Low) / 2;
        if constexpr (has_braces_among<T, At, All - At - middle>()) {
            return member_width<T, All, At, Low, middle>();
        } else {
            return member_width<T, All, At, middle + 1, High>();
        }
    }
}
inline constexpr std::size_t members_unknown = std::size_t{1} << 20;
template <class T, std::size_t All, std::size_t At = 0>
constexpr std::size_t count_members() noexcept {
    if constexpr (At >= All) {
        return 0;
    } else if constexpr (initialized_by<T, At, any_union>()) {
        return members_unknown;  // perhaps without a name, which no binding reaches
    } else if constexpr (has_braces_among<T, At, All - At - 1>() || !has_braces_among<T, At, 0>()) {
        return 1 + count_members<T, All,
                                 At + 1>();  // the second: of a type that no braces make, so it is no array
    } else {
        return 1 + count_members<T, All, At + member_width<T, All, At, 2, All - At>()>();
    }
}

/// How many members `T` has; 0, or more than `most_members`, where that is not known.
template <class T>
constexpr std::size_t member_count() noexcept {
    if constexpr (std::is_empty_v<T> || !initialized_by<T, 0>()) {
        return 0;
    } else {
        constexpr std::size_t all = element_count<T>();
        if constexpr (all == 0 || all > most_elements || has_braces_among<T, all, 0>()) {
            return 0;  // the last: there are more, but of what type is hidden
        } else {
            return count_members<T, all>();
        }
    }
}
/// As the members of a class that cannot be referred to: one of them is a bit-field.
struct no_members {};

/// References to the members of `whole`. Precondition: `has_members`, but for bit-fields.
template <class T>
constexpr auto members_of(T& whole) noexcept {
    constexpr std::size_t count = member_count<std::remove_const_t<T>>();
    if constexpr (count == 0) {
        return std::tuple<>();
    } else if constexpr (count == 1) {
        auto& [a] = whole;
        if constexpr (requires { std::tie(a); }) {
            return std::tie(a);
        } else {
            return no_members();
        }
    } else if constexpr (count == 2) {
        auto& [a, b] = whole;
        if constexpr (requires { std::tie(a, b); }) {
            return std::tie(a, b);
        } else {
            return no_members();
        }
    } else if constexpr (count == 3) {
        auto& [a, b, c] = whole;
        if constexpr (requires { std::tie(a, b, c); }) {
            return std::tie(a, b, c);
        } else {
            return no_members();
        }
    } else if constexpr (count == 4) {
        auto& [a, b, c, d] = whole;
        if constexpr (requires { std::tie(a, b, c, d); }) {
            return std::tie(a, b, c, d);
        } else {
            return no_members();
        }
    } else if constexpr (count == 5) {
        auto& [a, b, c, d, e] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e); }) {
            return std::tie(a, b, c, d, e);
        } else {
            return no_members();
        }
    } else if constexpr (count == 6) {
        auto& [a, b, c, d, e, f] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f); }) {
            return std::tie(a, b, c, d, e, f);
        } else {
            return no_members();
        }
    } else if constexpr (count == 7) {
        auto& [a, b, c, d, e, f, g] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g); }) {
            return std::tie(a, b, c, d, e, f, g);
        } else {
            return no_members();
        }
    } else if constexpr (count == 8) {
        auto& [a, b, c, d, e, f, g, h] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h); }) {
            return std::tie(a, b, c, d, e, f, g, h);
        } else {
            return no_members();
        }
    } else if constexpr (count == 9) {
        auto& [a, b, c, d, e, f, g, h, i] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i); }) {
            return std::tie(a, b, c, d, e, f, g, h, i);
        } else {
            return no_members();
        }
    } else if constexpr (count == 10) {
        auto& [a, b, c, d, e, f, g, h, i, j] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j);
        } else {
            return no_members();
        }
    } else if constexpr (count == 11) {
        auto& [a, b, c, d, e, f, g, h, i, j, k] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k);
        } else {
            return no_members();
        }
    } else if constexpr (count == 12) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
        } else {
            return no_members();
        }
    } else if constexpr (count == 13) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
        } else {
            return no_members();
        }
    } else if constexpr (count == 14) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
        } else {
            return no_members();
        }
    } else if constexpr (count == 15) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
        } else {
            return no_members();
        }
    } else if constexpr (count == 16) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
        } else {
            return no_members();
        }
    } else if constexpr (count == 17) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
        } else {
            return no_members();
        }
    } else if constexpr (count == 18) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
        } else {
            return no_members();
        }
    } else if constexpr (count == 19) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
        } else {
            return no_members();
        }
    } else if constexpr (count == 20) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
        } else {
            return no_members();
        }
    } else if constexpr (count == 21) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = whole;
        if constexpr (requires { std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u); }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        } else {
            return no_members();
        }
    } else if constexpr (count == 22) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
        } else {
            return no_members();
        }
    } else if constexpr (count == 23) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
        } else {
            return no_members();
        }
    } else if constexpr (count == 24) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
        } else {
            return no_members();
        }
    } else if constexpr (count == 25) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y);
        } else {
            return no_members();
        }
    } else if constexpr (count == 26) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,
                                   z);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z);
        } else {
            return no_members();
        }
    } else if constexpr (count == 27) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,
                                   z, aa);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa);
        } else {
            return no_members();
        }
    } else if constexpr (count == 28) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,
                                   z, aa, ab);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa,
                            ab);
        } else {
            return no_members();
        }
    } else if constexpr (count == 29) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac] =
            whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,
                                   z, aa, ab, ac);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa,
                            ab, ac);
        } else {
            return no_members();
        }
    } else if constexpr (count == 30) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad] =
            whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,
                                   z, aa, ab, ac, ad);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa,
                            ab, ac, ad);
        } else {
            return no_members();
        }
    } else if constexpr (count == 31) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad,
               ae] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,
                                   z, aa, ab, ac, ad, ae);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa,
                            ab, ac, ad, ae);
        } else {
            return no_members();
        }
    } else {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad,
               ae, af] = whole;
        if constexpr (requires {
                          std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,
                                   z, aa, ab, ac, ad, ae, af);
                      }) {
            return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa,
                            ab, ac, ad, ae, af);
        } else {
            return no_members();
        }
    }
}

template <class T>
constexpr bool tells_members() noexcept {
    if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T> || !std::is_move_assignable_v<T>) {
        return false;
    } else if constexpr (std::is_empty_v<T>) {
        return initialized_by<T, 0>();
    } else {
        constexpr std::size_t count = member_count<T>();
        if constexpr (count == 0 || count > most_members || initialized_by<T, 0, any_base<T>>()) {
            return false;
        } else {
            return !std::is_same_v<decltype(members_of(std::declval<T&>())), no_members>;
        }
    }
}
/// Whether the members of the aggregate `T` can be told: there are `most_members` at most, it can be made without values and each member
/// may be assigned, there are no base classes, unions and bit-fields, and no member has a constructor that takes anything at all, which
/// hides how many there are.
template <class T>
inline constexpr bool has_members = tells_members<T>();

/// The types of the members, as a tuple of references.
template <class T>
using member_types = decltype(members_of(std::declval<T&>()));

}  // namespace rdmacoro::detail
