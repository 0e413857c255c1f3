// Which kind of encoding a type has: the encoder, the decoder and signatures follow it alike.
#pragma once

#include <rdmacoro/service/detail/fields.hpp>

#include <array>
#include <chrono>
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
/// tuples, pairs, durations, and aggregates of up to 16 members of these. Aggregates with arrays of C (`std::array` will do), base
/// classes, bit-fields, anonymous unions, references and constants have no encoding of their own, nor have those that are ranges, too.
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
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_duration = false;
template <class R, class P>
inline constexpr bool is_duration<std::chrono::duration<R, P>> = true;

enum class encoding_kind : std::uint8_t {
    none,
    codec,      ///< the user's
    number,     ///< every pattern of bytes is a value, and each byte counts
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
    } else if constexpr (is_duration<T>) {
        return encoding_kind::duration;
    } else if constexpr (is_optional<T>) {
        return encoding_kind::optional;
    } else if constexpr (is_variant<T>) {
        return encoding_kind::variant;
    } else if constexpr (is_std_array<T>) {
        return encoding_kind::array;
    } else if constexpr (is_tuple<T>) {
        return encoding_kind::tuple;
    } else if constexpr (std::is_aggregate_v<T>) {
        constexpr bool something_else = std::ranges::range<T&> || requires { std::tuple_size<T>::value; };
        return !something_else && has_members<T> ? encoding_kind::aggregate : encoding_kind::none;
    } else if constexpr (std::ranges::sized_range<const T&> && std::ranges::range<T&>) {
        return encoding_kind::range;
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
    } else if constexpr (kind == encoding_kind::optional || kind == encoding_kind::array) {
        return has_encoding<typename T::value_type, T, Above...>();
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
    static_assert(has_encoding<T>(), "this type, or a part of it, has no encoding: numbers, enumerations "
                                     "with a fixed type, text and other ranges that know their "
                                     "size, std::optional, std::variant, tuples, durations and aggregates of "
                                     "up to 16 of these have one; for others "
                                     "specialize rdmacoro::codec");
    return has_encoding<T>();
}

/// Whether a value of `T` is read as a view of the message that it came in: `std::string_view`, `std::span<const std::byte>`, and what has
/// one as a part.
template <class T, class... Above>
constexpr bool has_views() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr (std::is_same_v<T, std::string_view> || std::is_same_v<T, std::span<const std::byte>>) {
        return true;
    } else if constexpr ((... || std::is_same_v<T, Above>)) {
        return false;
    } else if constexpr (kind == encoding_kind::optional || kind == encoding_kind::array) {
        return has_views<typename T::value_type, T, Above...>();
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
        static_assert(
            !has_views<T>(),
            "this result or item is, or has, a std::string_view or std::span<const std::byte>, and the "
            "message that it would refer to is gone when the caller gets it: use "
            "std::string or std::vector<std::byte>");
    }
}

/// Whether the object's bytes are its encoding: any of them are a value, and no contents of padding travel.
template <class T>
constexpr bool bytes_are_value() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr (kind == encoding_kind::number) {
        return true;
    } else if constexpr (kind == encoding_kind::array) {
        return std::tuple_size_v<T> != 0 && bytes_are_value<typename T::value_type>();
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

/// The fewest bytes of an encoding; 0 where a codec of the user's makes it.
template <class T>
constexpr std::size_t least_bytes() noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    if constexpr (kind == encoding_kind::number) {
        return sizeof(T);
    } else if constexpr (kind == encoding_kind::duration) {
        return least_bytes<typename T::rep>();
    } else if constexpr (kind == encoding_kind::array) {
        return std::tuple_size_v<T> * least_bytes<typename T::value_type>();
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
