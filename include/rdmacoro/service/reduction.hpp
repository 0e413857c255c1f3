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
/// commutative is applied in the order of the ranks. Every operation must be associative; of floating-point numbers only
/// `reproducible` makes the grouping the same each time.
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

/// A function object that makes one element of two, of trivially copyable elements.
template <class Op, class T>
concept reduces = std::is_trivially_copyable_v<T> && std::is_invocable_r_v<T, const Op&, const T&, const T&>;

namespace detail {

/// An operation on elements without their type. The loop over elements is compiled with the type, and called once for each block.
struct reduction {
    /// `into[i] = op(into[i], other[i])`; with `other_first`, `op(other[i], into[i])`. Both are aligned for the element.
    using function = void (*)(const void* op, std::byte* into, const std::byte* other, std::size_t count,
                              bool other_first);

    function apply = nullptr;
    const void* op = nullptr;
    bool commutative = true;
};

template <class T, class Op>
void apply_reduction(const void* op, std::byte* into, const std::byte* other, std::size_t count,
                     bool other_first) {
    const Op& with = *static_cast<const Op*>(op);
    T* __restrict left = reinterpret_cast<T*>(into);
    const T* __restrict right = reinterpret_cast<const T*>(other);
    // Of numbers that are equal and not the same (zeros with signs, payloads of NaNs) the first or the last is taken: all ranks
    // have the same bits only if all keep the order.
    if (other_first && !(is_commutative<Op, T> && std::is_integral_v<T>)) {
        for (std::size_t i = 0; i < count; ++i) left[i] = static_cast<T>(with(right[i], left[i]));
    } else {
        for (std::size_t i = 0; i < count; ++i) left[i] = static_cast<T>(with(left[i], right[i]));
    }
}

template <class T, class Op>
[[nodiscard]] reduction make_reduction(const Op& op) noexcept {
    return {&apply_reduction<T, Op>, &op, is_commutative<Op, T>};
}

}  // namespace detail
}  // namespace rdmacoro
