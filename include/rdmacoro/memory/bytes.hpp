// bytes_of: values and contiguous ranges as the bytes that they consist of.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

namespace rdmacoro {

namespace detail {

/// Whether an object's bytes are its value: it may be copied bytewise, and is no pointer, iterator or view, which only refers to it.
template <class T>
inline constexpr bool is_its_bytes =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_member_pointer_v<T> &&
    !std::is_null_pointer_v<T> && !std::is_volatile_v<T> && !requires(T& x) { std::begin(x); } &&
    !requires(T& x) {
        *x;
        ++x;
    };
template <class T>
inline constexpr bool is_its_bytes<const T> = is_its_bytes<T>;
template <class T, std::size_t N>
inline constexpr bool is_its_bytes<T[N]> = is_its_bytes<T>;
template <class T, std::size_t N>
inline constexpr bool is_its_bytes<const T[N]> = is_its_bytes<T>;
template <class T, std::size_t N>
inline constexpr bool is_its_bytes<std::array<T, N>> = is_its_bytes<T>;

/// A string literal or an array of constant characters: whether the zero at its end is data is ambiguous.
template <class T>
inline constexpr bool is_literal = false;
template <std::size_t N>
inline constexpr bool is_literal<const char[N]> = true;

/// A container, array or view of elements that lie in a row and are their bytes. `T` as named by a forwarding reference.
template <class T>
concept plain_range = !is_literal<std::remove_reference_t<T>> && requires(std::remove_reference_t<T>& x) {
    std::span(x);
    requires is_its_bytes<typename decltype(std::span(x))::element_type>;
};

/// A type that refers to elements that outlive it, as `std::span` and `std::string_view` do.
template <class T>
concept plain_view = plain_range<T> && std::is_trivially_copyable_v<std::remove_cvref_t<T>> &&
                     !is_its_bytes<std::remove_cvref_t<T>> && !std::is_array_v<std::remove_cvref_t<T>>;

/// A range that may be written to: elements that are not const, of something that is no temporary itself.
template <class T>
concept writable_range =
    plain_range<T> && (std::is_lvalue_reference_v<T> || plain_view<T>) &&
    !std::is_const_v<typename decltype(std::span(std::declval<std::remove_reference_t<T>&>()))::element_type>;

/// One that is not taken as `std::span<std::byte>` already.
template <class T>
concept other_range_to_write = writable_range<T> && !std::is_convertible_v<T, std::span<std::byte>>;

template <class Element>
[[nodiscard, gnu::always_inline]] inline auto raw_bytes(Element* first, std::size_t count) noexcept {
    using byte = std::conditional_t<std::is_const_v<Element>, const std::byte, std::byte>;
    return std::span<byte>(reinterpret_cast<byte*>(first), count * sizeof(Element));
}

/// The bytes of a range's elements.
template <class Range>
[[nodiscard, gnu::always_inline]] inline auto range_bytes(Range& elements) noexcept {
    const auto all = std::span(elements);
    return raw_bytes(all.data(), all.size());
}

/// An argument of `bytes_of`: as named by a forwarding reference.
template <class T>
inline constexpr bool has_bytes =
    plain_view<T> ||
    (std::is_lvalue_reference_v<T> && (plain_range<T> || (is_its_bytes<std::remove_reference_t<T>> &&
                                                          !is_literal<std::remove_reference_t<T>>)));

}  // namespace detail

/// The bytes of a trivially copyable value, an array, or the elements of a contiguous range (`std::vector`, `std::string`,
/// `std::span`, ...): `std::span<std::byte>`, or `std::span<const std::byte>` where they are const. Borrows the memory: a temporary
/// is refused, unless it is a view.
///
/// Refused as well, with one line that names the type: what is not trivially copyable; what refers to its value instead of
/// containing it (pointers, iterators, ranges of views); containers that are not contiguous; and a literal, as the zero at its end
/// belongs to it or not: `bytes_of(std::string_view("text"))`. A pointer within a struct is not noticed. Padding is sent as it is.
template <class T>
    requires detail::has_bytes<T>
[[nodiscard, gnu::always_inline]] inline auto bytes_of(T&& x) noexcept {
    if constexpr (detail::plain_range<T>) {
        return detail::range_bytes(x);
    } else {
        return detail::raw_bytes(&x, 1);
    }
}

// clang-format off: compilers show the lines with their comments

/// Refuses everything else. A `bytes_of` of the program's own is preferred to it.
template <class Refused>
    requires(!detail::has_bytes<const Refused&>)
void bytes_of(const Refused&, ...) = delete;  // takes a trivially copyable value or contiguous range; a literal as std::string_view

/// Refuses temporaries, of which the bytes would be gone.
template <class Temporary>
    requires(!std::is_lvalue_reference_v<Temporary> && !detail::has_bytes<Temporary> && detail::has_bytes<const Temporary&>)
void bytes_of(Temporary&&, ...) = delete;  // takes what has a name: the bytes of a temporary would be gone

// clang-format on

}  // namespace rdmacoro
