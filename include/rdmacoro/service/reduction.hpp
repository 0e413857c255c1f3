// reduction: how two contributions become one.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>

namespace rdmacoro {

/// The smaller of two, for `reduce` and its like.
struct minimum {
    /// As `std::min`.
    template <class T>
    [[nodiscard]] constexpr T operator()(const T& a, const T& b) const {
        return b < a ? b : a;
    }
};
/// The larger of two.
struct maximum {
    /// As `std::max`.
    template <class T>
    [[nodiscard]] constexpr T operator()(const T& a, const T& b) const {
        return a < b ? b : a;
    }
};

namespace detail {
template <class Op>
inline constexpr bool is_standard_commutative = false;
template <class T>
inline constexpr bool is_standard_commutative<std::plus<T>> = true;
template <class T>
inline constexpr bool is_standard_commutative<std::multiplies<T>> = true;
template <class T>
inline constexpr bool is_standard_commutative<std::bit_and<T>> = true;
template <class T>
inline constexpr bool is_standard_commutative<std::bit_or<T>> = true;
template <class T>
inline constexpr bool is_standard_commutative<std::bit_xor<T>> = true;
template <class T>
inline constexpr bool is_standard_commutative<std::logical_and<T>> = true;
template <class T>
inline constexpr bool is_standard_commutative<std::logical_or<T>> = true;
template <>
inline constexpr bool is_standard_commutative<minimum> = true;
template <>
inline constexpr bool is_standard_commutative<maximum> = true;
}  // namespace detail

/// Whether `Op` gives the same for (a, b) and (b, a) of type `T`. True for the function objects of the standard library and `minimum`,
/// `maximum` on numbers, and where `Op` has `static constexpr bool commutative = true`. Specialize it for others. An operation that is not
/// commutative is applied in the order of the ranks.
template <class Op, class T>
inline constexpr bool is_commutative = [] {
    if constexpr (requires {
                      { Op::commutative } -> std::convertible_to<bool>;
                  }) {
        return static_cast<bool>(Op::commutative);
    } else {
        return std::is_arithmetic_v<T> && detail::is_standard_commutative<Op>;
    }
}();

/// Whether `Op` may be grouped in any way: `op(op(a, b), c)` is as good as `op(a, op(b, c))`. True, also of floating-point numbers, of which only `reproducible`
/// makes the grouping the same each time; but where `Op` has `static constexpr bool associative = false`. Specialize it for others. An
/// operation that is not associative is applied from rank 0 on, one rank after the other: `op(op(op(x0, x1), x2), x3)`. That takes as
/// many steps as there are ranks.
template <class Op, class T>
inline constexpr bool is_associative = [] {
    if constexpr (requires {
                      { Op::associative } -> std::convertible_to<bool>;
                  }) {
        return static_cast<bool>(Op::associative);
    } else {
        return true;
    }
}();

/// A function object that makes one element of two, of trivially copyable elements.
template <class Op, class T>
concept reduces = std::is_trivially_copyable_v<T> && std::is_invocable_r_v<T, const Op&, const T&, const T&>;

namespace detail {

/// An operation on elements without their type. The loop over elements is compiled with the type, and called once for each block.
struct reduction {
    /// `into[i] = op(first[i], second[i])`. All are aligned for the element. `into` may be one of the others; otherwise none overlap.
    using function = void (*)(const void* op, std::byte* into, const std::byte* first,
                              const std::byte* second, std::size_t count);

    function apply = nullptr;
    const void* op = nullptr;
    bool commutative = true;
    bool associative = true;
};

/// Elements that a loop of constant length combines: g++ takes several at a time at -O2 only there.
template <class T>
inline constexpr std::size_t combined_at_once = sizeof(T) < 64 ? 128 / sizeof(T) : 1;

template <class T, class Op>
void combine_rows(const Op& with, T* __restrict to, const T* __restrict first, const T* __restrict second,
                  std::size_t count) {
    const std::size_t whole = count - count % combined_at_once<T>;
    for (std::size_t at = 0; at < whole; at += combined_at_once<T>) {
        for (std::size_t i = at; i < at + combined_at_once<T>; ++i)
            to[i] = static_cast<T>(with(first[i], second[i]));
    }
    for (std::size_t i = whole; i < count; ++i) to[i] = static_cast<T>(with(first[i], second[i]));
}
template <bool ToIsFirst, class T, class Op>
void combine_into(const Op& with, T* __restrict to, const T* __restrict other, std::size_t count) {
    const auto one = [&with](const T& own, const T& others) {
        return static_cast<T>(ToIsFirst ? with(own, others) : with(others, own));
    };
    const std::size_t whole = count - count % combined_at_once<T>;
    for (std::size_t at = 0; at < whole; at += combined_at_once<T>) {
        for (std::size_t i = at; i < at + combined_at_once<T>; ++i) to[i] = one(to[i], other[i]);
    }
    for (std::size_t i = whole; i < count; ++i) to[i] = one(to[i], other[i]);
}

/// Of numbers that are equal and not the same (zeros with signs, payloads of NaNs) the first or the last is taken: all ranks have the
/// same bits only if all keep the order. Integers have no such: their two ways to overlap are one.
template <class T, class Op>
void apply_reduction(const void* op, std::byte* into, const std::byte* first, const std::byte* second,
                     std::size_t count) {
    const Op& with = *static_cast<const Op*>(op);
    T* const to = reinterpret_cast<T*>(into);
    const T* const left = reinterpret_cast<const T*>(first);
    const T* const right = reinterpret_cast<const T*>(second);
    if (into == first || (into == second && is_commutative<Op, T> && std::is_integral_v<T>)) {
        combine_into<true>(with, to, into == first ? right : left, count);
    } else if (into == second) {
        combine_into<false>(with, to, left, count);
    } else {
        combine_rows(with, to, left, right, count);
    }
}

template <class T, class Op>
[[nodiscard]] reduction make_reduction(const Op& op) noexcept {
    return {&apply_reduction<T, Op>, &op, is_commutative<Op, T>, is_associative<Op, T>};
}

}  // namespace detail
}  // namespace rdmacoro
