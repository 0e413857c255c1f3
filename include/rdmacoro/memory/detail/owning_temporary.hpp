// Which arguments of a call own memory that is freed at the end of the statement.
#pragma once

#include <rdmacoro/coro/detail/borrows_temporary.hpp>

#include <span>
#include <type_traits>

namespace rdmacoro::detail {

/// `Arg`, as deduced for an `Arg&&`, is a temporary that owns what it refers to, such as a vector. A range owns its elements
/// unless it is a `std::ranges::borrowed_range`, as spans and string views are; anything else does if it has a destructor, or was made
/// from such temporaries itself, as what `gather` gives.
template <class Arg>
concept owning_temporary =
    !std::is_lvalue_reference_v<Arg> &&
    (borrows_temporary<Arg> ||
     (std::ranges::range<Arg&> ? !std::ranges::enable_borrowed_range<std::remove_cvref_t<Arg>>
                               : !std::is_trivially_destructible_v<Arg>));

/// Checked by `operation_on`: `Arg` is no name of buffers that were made from temporaries.
template <class Arg>
struct lives_long_enough : std::true_type {
    static_assert(
        !(std::is_lvalue_reference_v<Arg> && borrows_temporary<Arg>),
        "these buffers were gathered from a temporary, which was destroyed at the end of the statement: "
        "write gather(...) in the call itself, or give the temporary a name");
};

/// The operation on an `Arg`: `Op`, or one that must be awaited in the same statement.
template <class Op, class Arg>
using operation_on =
    std::conditional_t<lives_long_enough<Arg>::value && owning_temporary<Arg>, of_temporary<Op>, Op>;

}  // namespace rdmacoro::detail
