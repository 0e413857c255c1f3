// signature_of: a number by which two programs know that a type has the same encoding in both.
#pragma once

#include <rdmacoro/service/detail/kinds.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace rdmacoro {

namespace detail {

class signature_hash {
public:
    constexpr void add(std::uint64_t number) noexcept {
        for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(number >> (8 * i)));
    }
    constexpr void add(std::string_view text) noexcept {
        add(text.size());
        for (const char c : text) add_byte(static_cast<unsigned char>(c));
    }
    [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

private:
    constexpr void add_byte(unsigned char byte) noexcept { value_ = (value_ ^ byte) * 0x100000001b3ULL; }
    std::uint64_t value_ = 0xcbf29ce484222325ULL;  // FNV-1a, 64 bits
};

/// `Above`: the types within which `T` stands; a type within itself is named by how far above it is.
template <class T, class... Above>
constexpr void sign(signature_hash& to) noexcept;

template <class T, class... Above>
constexpr void sign(signature_hash& to) noexcept {
    constexpr encoding_kind kind = kind_of<T>();
    constexpr bool within_itself = (... || std::is_same_v<T, Above>);
    if constexpr (within_itself) {
        std::uint64_t above = 0;
        bool found = false;
        ((found = found || std::is_same_v<T, Above>, above += found ? 0 : 1), ...);
        to.add("again");
        to.add(above);
    } else if constexpr (kind == encoding_kind::codec) {
        to.add("codec");
        to.add(codec<T>::name);
    } else if constexpr (kind == encoding_kind::flag) {
        to.add("bool");
    } else if constexpr (std::is_same_v<T, std::byte>) {
        to.add("byte");
    } else if constexpr (std::is_same_v<T, char>) {
        to.add("char");  // signed or not, as the machine has it
    } else if constexpr (std::is_enum_v<T>) {
        to.add("enum");
        sign<std::underlying_type_t<T>>(to);
    } else if constexpr (is_complex<T>) {
        to.add("complex");
        sign<typename T::value_type>(to);
    } else if constexpr (kind == encoding_kind::bytes) {
        to.add("bytes");
        to.add(sizeof(T));
        to.add(alignof(T));
        to.add(type_name<T>());
    } else if constexpr (kind == encoding_kind::number) {
        to.add(std::is_floating_point_v<T> ? "float" : std::is_signed_v<T> ? "int" : "unsigned");
        to.add(sizeof(T));
    } else if constexpr (kind == encoding_kind::duration) {
        to.add("duration");
        to.add(static_cast<std::uint64_t>(T::period::num));
        to.add(static_cast<std::uint64_t>(T::period::den));
        sign<typename T::rep>(to);
    } else if constexpr (kind == encoding_kind::optional) {
        to.add("optional");
        sign<typename T::value_type, T, Above...>(to);
    } else if constexpr (kind == encoding_kind::array) {
        to.add("array");
        to.add(array_facts<T>::size);
        sign<array_element<T>, T, Above...>(to);
    } else if constexpr (kind == encoding_kind::range) {
        to.add("range");
        sign<element_of<T>, T, Above...>(to);
    } else {
        to.add(kind == encoding_kind::variant ? "variant" : "members");  // a tuple is encoded as an aggregate
        to.add(std::tuple_size_v<typename parts<T>::type>);
        for_each_part<T>([&](auto part) { sign<typename decltype(part)::type, T, Above...>(to); });
    }
}

}  // namespace detail

/// A number that two types have in common only if they have the same encoding (but for one chance in 2^64): programs compare it before
/// they exchange values. Counts the kinds, sizes and order of all parts, names of `codec` specializations, and this machine's byte
/// order; names of members and types do not count, but for the types that travel as bytes which are not looked into. Types of different kinds, such as an enumeration and a number, have different
/// numbers even where their bytes are the same.
template <class T>
[[nodiscard]] constexpr std::uint64_t signature_of() noexcept {
    using type = std::remove_cvref_t<T>;
    if constexpr (detail::must_have_encoding<type>()) {
        detail::signature_hash hash;
        hash.add(std::endian::native == std::endian::little ? "little" : "big");
        detail::sign<type>(hash);
        return hash.value();
    } else {
        return 0;
    }
}

}  // namespace rdmacoro
