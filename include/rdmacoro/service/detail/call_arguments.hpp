// call_arguments: the arguments of a call until they are sent: variables are borrowed, temporaries kept.
#pragma once

#include <rdmacoro/service/codec.hpp>

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// Whether an `A` may stand for a parameter `P` as it is, because it has the same encoding.
template <class A, class P>
constexpr bool encodes_as() noexcept {
    if constexpr (std::is_same_v<A, P>) {
        return true;
    } else if constexpr (std::is_array_v<A>) {
        return false;
    } else if constexpr (has_encoding<A>()) {
        return signature_of<A>() == signature_of<P>();
    } else {
        return false;
    }
}

/// How an argument of type `A` (a reference for a variable) is stored for a parameter `P`.
template <class A, class P>
constexpr auto stored_argument() noexcept {
    using bare = std::remove_cvref_t<A>;
    if constexpr (encodes_as<bare, P>()) {
        if constexpr (std::is_lvalue_reference_v<A>) {
            return std::type_identity<const bare&>();
        } else {
            return std::type_identity<bare>();
        }
    } else if constexpr (encodes_as<std::string_view, P>() && std::is_convertible_v<A, std::string_view>) {
        return std::type_identity<std::string_view>();  // a literal, or text of C
    } else {
        static_assert(std::is_convertible_v<A, P>, "an argument of this call is not of its method's type");
        return std::type_identity<P>();
    }
}
template <class A, class P>
using stored_argument_t = typename decltype(stored_argument<A, P>())::type;

template <class Parameters, class... A>
struct call_arguments;
template <class... P, class... A>
struct call_arguments<std::tuple<P...>, A...> {
    static_assert(sizeof...(P) == sizeof...(A), "a call has as many arguments as its method has parameters");
    using type = std::tuple<stored_argument_t<A, P>...>;
    /// All arguments travel as their bytes.
    static constexpr bool fixed =
        (... && (bytes_are_value<P>() && bytes_are_value<std::remove_cvref_t<stored_argument_t<A, P>>>()));
    static constexpr std::size_t bytes = (std::size_t{0} + ... + sizeof(P));
};

}  // namespace rdmacoro::detail
