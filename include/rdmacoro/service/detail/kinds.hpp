// Which kind of encoding a type has: the encoder, the decoder and signatures follow it alike.
#pragma once

#include <rdmacoro/service/detail/fields.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace rdmacoro {

class encoder;
class decoder;

/// How a type of the user's becomes bytes: specialize it with
///  - `static constexpr std::string_view name`: part of the signature, by which two programs know that they mean the same;
///  - `static void write(encoder& to, const T& value)`: calls `to.write` for each part. A variable of the function's own is no part: it ends
///    before the message is sent, and is written as a temporary, `to.write(std::move(text))`;
///  - `static bool read(decoder& from, T& into)`: calls `from.read` for each part, in the same order, and answers whether all could be
///    read; what does not hold for the type is refused by `from.refuse("why")`.
/// Nothing of the kind is needed for numbers, enumerations, text and other ranges that know their size, `std::optional`, `std::variant`,
/// tuples, pairs, durations, and aggregates of up to 32 members of these, which may be arrays of C. Other classes that are trivially
/// copyable travel as their bytes, unless they have padding: those with private members, base classes or bit-fields, or with more
/// members. Their signature is their size, alignment and name. Of these any bytes become a value: specialize it for a class that does not
/// take all. Where a pointer can be seen, and in classes of the standard library's, there is no encoding; nor have aggregates that are
/// ranges, too.
template <class T>
struct codec;

namespace detail {

template <class T>
concept has_codec = requires(encoder& to, decoder& from, const T& value, T& into) {
    { codec<T>::name } -> std::convertible_to<std::string_view>;
    codec<T>::write(to, value);
    { codec<T>::read(from, into) } -> std::same_as<bool>;
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;
template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<std::complex<T>> =
    std::is_floating_point_v<T> && !std::is_same_v<T, long double>;
/// Arrays of both kinds.
template <class T>
struct array_facts {
    static constexpr bool is_array = false;
};
template <class T, std::size_t N>
struct array_facts<std::array<T, N>> {
    static constexpr bool is_array = true;
    static constexpr std::size_t size = N;
    using element = T;
};
template <class T, std::size_t N>
struct array_facts<T[N]> : array_facts<std::array<T, N>> {};
template <class T>
using array_element = typename array_facts<T>::element;
template <class T>
inline constexpr bool is_duration = false;
template <class R, class P>
inline constexpr bool is_duration<std::chrono::duration<R, P>> = true;

/// As the compiler writes it; of a type without template arguments, all compilers alike.
template <class T>
constexpr std::string_view type_name() noexcept {
    constexpr std::string_view all = __PRETTY_FUNCTION__;
    constexpr std::size_t begin = all.find("T = ") + 4;
    return all.substr(begin, all.find_first_of(";]", begin) - begin);
}

template <class T>
constexpr unsigned sum_of_bytes() noexcept {
    unsigned sum = 0;
    for (const unsigned char one : std::bit_cast<std::array<unsigned char, sizeof(T)>>(T{})) sum += one;
    return sum;
}
/// Whether each byte of a `T` is a part of its value. To read one that is padding is no constant expression.
template <class T>
constexpr bool has_no_padding() noexcept {
    return std::has_unique_object_representations_v<T> ||
           requires { typename std::integral_constant<unsigned, sum_of_bytes<T>()>; };
}

/// Whether `T` is a class of which only this is seen: it may be copied as its bytes, and each counts.
template <class T>
constexpr bool is_plain_object() noexcept {
    if constexpr (std::is_class_v<T> && std::is_trivially_copyable_v<T> &&
                  std::is_default_constructible_v<T> && std::is_copy_assignable_v<T> && !std::is_empty_v<T>) {
        // The standard library's refer to what is elsewhere, or are not the same in another version.
        constexpr std::string_view name = type_name<T>();
        return !name.starts_with("std::") && !name.starts_with("__gnu_cxx::") && has_no_padding<T>();
    } else {
        return false;
    }
}

enum class encoding_kind : std::uint8_t {
    none,
    codec,      ///< the user's
    number,     ///< every pattern of bytes is a value, and each byte counts
    bytes,      ///< the same of a class that is not looked into
    flag,       ///< bool
    duration,   ///< a count
    optional,   ///< a flag, and a value
    variant,    ///< an index, and a value
    array,      ///< so many elements
    tuple,      ///< its members
    aggregate,  ///< its members
    range,      ///< a length, and elements
};

template <class T>
constexpr encoding_kind kind_of() noexcept {
    if constexpr (requires { sizeof(codec<T>); }) {
        static_assert(
            has_codec<T>,
            "a specialization of rdmacoro::codec needs a name, `static void write(encoder&, const T&)` and "
            "`static bool read(decoder&, T&)`");
        return encoding_kind::codec;
    } else if constexpr (std::is_same_v<T, bool>) {
        return encoding_kind::flag;
    } else if constexpr (std::is_arithmetic_v<T>) {
        return std::is_same_v<T, long double> ? encoding_kind::none
                                              : encoding_kind::number;  // it has padding
    } else if constexpr (std::is_enum_v<T>) {
        // One without a fixed type has patterns that are no values.
        constexpr bool any_value = requires { T{0}; } && !std::is_same_v<std::underlying_type_t<T>, bool>;
        return any_value ? encoding_kind::number : encoding_kind::none;
    } else if constexpr (is_complex<T>) {
        return encoding_kind::number;
    } else if constexpr (is_duration<T>) {
        return encoding_kind::duration;
    } else if constexpr (is_optional<T>) {
        return encoding_kind::optional;
    } else if constexpr (is_variant<T>) {
        return encoding_kind::variant;
    } else if constexpr (array_facts<T>::is_array) {
        return encoding_kind::array;
    } else if constexpr (is_tuple<T>) {
        return encoding_kind::tuple;
    } else if constexpr (std::ranges::range<T&>) {
        // An aggregate may be a range as well: which of them its encoding follows is not for the library to say.
        return std::ranges::sized_range<const T&> && !std::is_aggregate_v<T> ? encoding_kind::range
                                                                             : encoding_kind::none;
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
        return encoding_kind::none;
    } else if constexpr (has_members<T>) {
        return encoding_kind::aggregate;
    } else if constexpr (is_plain_object<T>()) {
        return encoding_kind::bytes;
    } else {
        return encoding_kind::none;
    }
}

/// The type that elements are read into: of a map, pairs without a const.
template <class T>
struct readable {
    using type = std::remove_cv_t<T>;
};
template <class A, class B>
struct readable<std::pair<const A, B>> {
    using type = std::pair<A, B>;
};
template <class Range>
using element_of = typename readable<std::ranges::range_value_t<Range>>::type;

/// The types of the parts, as a tuple that is never made; of an aggregate references to them.
template <class T>
struct parts {
    using type = T;
};
template <class T>
    requires(kind_of<T>() == encoding_kind::aggregate)
struct parts<T> {
    using type = member_types<T>;
};
template <class... T>
struct parts<std::variant<T...>> {
    using type = std::tuple<T...>;
};

/// Calls `function` with a tag of each part's type, in order.
template <class T>
struct type_tag {
    using type = T;
};
template <class T, class Function>
constexpr void for_each_part(Function function) {
    using all = typename parts<T>::type;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        (function(type_tag<std::remove_cvref_t<std::tuple_element_t<I, all>>>()), ...);
    }(std::make_index_sequence<std::tuple_size_v<all>>());
}

/// Whether `T` and all its parts have an encoding. `Above`: the types within which it stands.
template <class T, class... Above>
constexpr bool has_encoding() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr ((... || std::is_same_v<T, Above>)) {
        return true;
    } else if constexpr (kind == encoding_kind::none) {
        return false;
    } else if constexpr (kind == encoding_kind::optional) {
        return has_encoding<typename T::value_type, T, Above...>();
    } else if constexpr (kind == encoding_kind::array) {
        return has_encoding<array_element<T>, T, Above...>();
    } else if constexpr (kind == encoding_kind::range) {
        return has_encoding<element_of<T>, T, Above...>();
    } else if constexpr (kind == encoding_kind::tuple || kind == encoding_kind::aggregate ||
                         kind == encoding_kind::variant) {
        bool all = true;
        for_each_part<T>(
            [&](auto part) { all = has_encoding<typename decltype(part)::type, T, Above...>() && all; });
        return all;
    } else {
        return true;
    }
}

/// As `has_encoding`; where it is false the compiler says so in one line.
template <class T>
constexpr bool must_have_encoding() noexcept {
    static_assert(has_encoding<T>(),
                  "this type, or a part of it, has no encoding: numbers, enumerations "
                  "with a fixed type, text and other ranges that know their "
                  "size, std::optional, std::variant, tuples, durations, aggregates of "
                  "up to 32 of these, and trivially copyable classes without padding have one; for others "
                  "specialize rdmacoro::codec");
    return has_encoding<T>();
}

/// Whether the object's bytes are its encoding: any of them are a value, and no contents of padding travel.
template <class T>
constexpr bool bytes_are_value() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr (kind == encoding_kind::number || kind == encoding_kind::bytes) {
        return true;
    } else if constexpr (kind == encoding_kind::array) {
        return array_facts<T>::size != 0 && bytes_are_value<array_element<T>>();
    } else if constexpr (kind == encoding_kind::aggregate && std::is_trivially_copyable_v<T>) {
        bool all = true;
        std::size_t bytes = 0;
        for_each_part<T>([&](auto part) {
            using type = typename decltype(part)::type;
            all = bytes_are_value<type>() && all;
            bytes += sizeof(type);
        });
        return all && bytes == sizeof(T);
    } else {
        return false;
    }
}

/// A range of elements that lie in a row and are their encoding.
template <class T>
concept row_of_values = std::ranges::contiguous_range<T> && std::ranges::sized_range<T> &&
                        bytes_are_value<std::remove_cv_t<std::ranges::range_value_t<T>>>();

/// Text or a row that lies elsewhere: of what is read it is a part of the message.
template <class T>
inline constexpr bool is_view = std::is_same_v<T, std::string_view>;
template <class E>
inline constexpr bool is_view<std::span<const E>> =
    alignof(E) <= alignof(std::max_align_t) && bytes_are_value<E>();

/// Whether a value of `T` is read as a view of the message that it came in: `std::string_view`, `std::span<const E>`, and what has one as a part.
template <class T, class... Above>
constexpr bool has_views() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr (is_view<T>) {
        return true;
    } else if constexpr ((... || std::is_same_v<T, Above>)) {
        return false;
    } else if constexpr (kind == encoding_kind::optional) {
        return has_views<typename T::value_type, T, Above...>();
    } else if constexpr (kind == encoding_kind::array) {
        return has_views<array_element<T>, T, Above...>();
    } else if constexpr (kind == encoding_kind::range) {
        return has_views<element_of<T>, T, Above...>();
    } else if constexpr (kind == encoding_kind::tuple || kind == encoding_kind::aggregate ||
                         kind == encoding_kind::variant) {
        bool any = false;
        for_each_part<T>(
            [&](auto part) { any = has_views<typename decltype(part)::type, T, Above...>() || any; });
        return any;
    } else {
        return false;
    }
}
/// For what is given out when its message is gone.
template <class T>
constexpr void must_not_have_views() noexcept {
    if constexpr (!std::is_void_v<T>) {
        static_assert(!has_views<T>(),
                      "this result or item is, or has, a std::string_view or std::span<const T>, and the "
                      "message that it would refer to is gone when the caller gets it: use "
                      "std::string or std::vector<T>");
    }
}

/// At a multiple of so many bytes from the message's beginning an element of this type lies that is the first of a range: where it is made of
/// numbers alone, and is of a type of the same signature that may be read in place. 0: of other things.
template <class T>
constexpr std::size_t element_alignment() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr (is_complex<T>) {
        return element_alignment<typename T::value_type>();
    } else if constexpr (kind == encoding_kind::number) {
        return std::min(sizeof(T), std::size_t{8});
    } else if constexpr (kind == encoding_kind::bytes) {
        return std::min(alignof(T), std::size_t{8});
    } else if constexpr (kind == encoding_kind::array) {
        return element_alignment<array_element<T>>();
    } else if constexpr (kind == encoding_kind::tuple || kind == encoding_kind::aggregate) {
        std::size_t most = 1;
        bool all = true;
        for_each_part<T>([&](auto part) {
            constexpr std::size_t own = element_alignment<typename decltype(part)::type>();
            most = std::max(most, own);
            all = all && own != 0;
        });
        return all ? most : 0;
    } else {
        return 0;
    }
}

/// The fewest bytes of an encoding; 0 where a codec of the user's makes it.
template <class T>
constexpr std::size_t least_bytes() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr (kind == encoding_kind::number || kind == encoding_kind::bytes) {
        return sizeof(T);
    } else if constexpr (kind == encoding_kind::duration) {
        return least_bytes<typename T::rep>();
    } else if constexpr (kind == encoding_kind::array) {
        return array_facts<T>::size * least_bytes<array_element<T>>();
    } else if constexpr (kind == encoding_kind::tuple || kind == encoding_kind::aggregate) {
        std::size_t bytes = 0;
        for_each_part<T>([&](auto part) { bytes += least_bytes<typename decltype(part)::type>(); });
        return bytes;
    } else {
        return kind == encoding_kind::codec ? 0 : 1;
    }
}

}  // namespace detail
}  // namespace rdmacoro
