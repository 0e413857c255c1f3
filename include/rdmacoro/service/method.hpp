// method: what can be called, by name, with its types; both ends have it from the same header of the program's.
#pragma once

#include <rdmacoro/service/signature.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace rdmacoro {

/// The name of a `method`, as a template argument: a string literal.
template <std::size_t N>
struct method_name {
    /// Of a literal.
    consteval method_name(const char (&literal)[N]) noexcept {
        for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
    }
    /// Without the final zero.
    [[nodiscard]] constexpr std::string_view view() const noexcept { return {text, N - 1}; }

    char text[N];  ///< the literal
};

/// As a method's result: any number of `T`, one after the other, read as they come. As its last parameter: any number that the caller
/// writes and the handler reads. See `calls::open`.
template <class T>
struct stream;

/// As a method's result: there is no answer. See `calls::cast`.
struct one_way;

namespace detail {

template <class T>
inline constexpr bool is_stream = false;
template <class T>
inline constexpr bool is_stream<stream<T>> = true;

/// A method's parameters: the values, and the items of the stream that its caller writes, `void` where there is none.
template <class Values, class... P>
struct parameter_kinds;
template <class... V>
struct parameter_kinds<std::tuple<V...>> {
    using values = std::tuple<V...>;
    using item = void;
};
template <class... V, class T>
struct parameter_kinds<std::tuple<V...>, stream<T>> {
    using values = std::tuple<V...>;
    using item = T;
};
template <class... V, class P, class... Rest>
struct parameter_kinds<std::tuple<V...>, P, Rest...> : parameter_kinds<std::tuple<V..., P>, Rest...> {
    static_assert(!is_stream<P>, "a stream is the last of a method's parameters");
};
template <class... P>
using values_of = typename parameter_kinds<std::tuple<>, P...>::values;
template <class... P>
using items_of = typename parameter_kinds<std::tuple<>, P...>::item;
/// Whether the caller of a method with parameters `P` writes a stream.
template <class... P>
inline constexpr bool takes_stream = !std::is_void_v<items_of<P...>>;

constexpr std::uint64_t hash_of(std::string_view text) noexcept {
    signature_hash hash;
    hash.add(text);
    return hash.value();
}
/// The part of a method's name before the first dot. A loop, as g++ 12 under UndefinedBehaviorSanitizer takes `find` for no constant.
constexpr std::string_view service_part(std::string_view name) noexcept {
    std::size_t length = 0;
    while (length < name.size() && name[length] != '.') ++length;
    return name.substr(0, length);
}
constexpr std::uint32_t fold(std::uint64_t number) noexcept {
    return static_cast<std::uint32_t>(number ^ (number >> 32));
}

/// The part of a method's result in its signature.
template <class R>
struct result_signature {
    static constexpr std::uint64_t value = signature_of<R>();
};
template <>
struct result_signature<void> {
    static constexpr std::uint64_t value = hash_of("void");
};
template <>
struct result_signature<one_way> {
    static constexpr std::uint64_t value = hash_of("one way");
};
template <class T>
struct result_signature<stream<T>> {
    static constexpr std::uint64_t value = hash_of("stream") ^ signature_of<T>();
};

/// The part of the stream that a caller writes in the signature.
template <class T>
struct written_signature {
    static constexpr std::uint64_t value = hash_of("written stream") ^ signature_of<T>();
};
template <>
struct written_signature<void> {
    static constexpr std::uint64_t value = 0;
};

/// The facts about a method that do not depend on its types.
struct method_facts {
    std::string_view name;
    std::uint64_t number;     ///< of the name
    std::uint32_t signature;  ///< of the types
    std::uint16_t service;    ///< of the part of the name before the first dot, 15 bits
};

}  // namespace detail

/// Something that can be called at a peer: a name, the types of arguments and result. The name's part before the first dot is its
/// service's. Arguments and results are values that have an encoding (codec.hpp); a result may be `void`, `stream<T>` or `one_way`, and the last parameter a `stream<T>`.
/// An object of it names it in calls:
///
///     struct kv {
///         static constexpr rc::method<"kv.get", std::string(std::string)> get{};
///         static constexpr rc::method<"kv.scan", rc::stream<row>(range)> scan{};
///         static constexpr rc::method<"kv.load", std::uint64_t(rc::stream<row>)> load{};
///         static constexpr rc::method<"kv.note", rc::one_way(event)> note{};
///     };
template <method_name Name, class Signature>
struct method;

/// Of parameters `P` with a result `R`.
template <method_name Name, class R, class... P>
struct method<Name, R(P...)> {
    using result_type = R;                       ///< what a call ends with
    using parameters = detail::values_of<P...>;  ///< the values that a handler gets
    using written_type =
        detail::items_of<P...>;  ///< of the stream that the caller writes; `void`: there is none
    static_assert((... && (!std::is_reference_v<P> && !std::is_const_v<P>)),
                  "a method's parameters are values: T instead of const T&");
    static_assert(!(detail::takes_stream<P...> && std::is_same_v<R, one_way>),
                  "a method that takes a stream has a result: void instead of one_way");

    /// As it was declared.
    static constexpr std::string_view name = Name.view();
    static_assert(!name.empty(), "a method needs a name");
    /// By which it is found.
    static constexpr std::uint64_t number = detail::hash_of(name);
    /// By which both ends know that they mean the same types.
    static constexpr std::uint32_t signature =
        detail::fold((detail::result_signature<R>::value * 31 + signature_of<parameters>()) ^
                     detail::written_signature<written_type>::value);
    /// Of the service that it is a part of.
    static constexpr std::uint16_t service =
        static_cast<std::uint16_t>(detail::hash_of(detail::service_part(name)) & 0x7fff);

    /// Internal: all of them, for what does not depend on the types.
    static constexpr detail::method_facts facts{name, number, signature, service};
};

namespace detail {
template <class M>
inline constexpr bool is_method = false;
template <method_name Name, class Signature>
inline constexpr bool is_method<method<Name, Signature>> = true;
}  // namespace detail

}  // namespace rdmacoro
