// Operations that were made from a temporary: only an await in the same statement may use them.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <type_traits>

namespace rdmacoro::detail {

/// Whether an awaitable borrows memory that is freed at the end of the statement in which it was made: its type has
/// `static constexpr bool borrows_temporary = true`. Adaptors have it from the awaitable that they hold.
template <class A>
inline constexpr bool borrows_temporary = [] {
    if constexpr (requires { std::remove_cvref_t<A>::borrows_temporary; }) {
        return static_cast<bool>(std::remove_cvref_t<A>::borrows_temporary);
    } else {
        return false;
    }
}();

/// Called by what keeps an awaitable beyond the statement, or may: refuses one that borrows a temporary.
template <class A>
[[gnu::always_inline]] constexpr void must_outlive_statement() noexcept {
    static_assert(
        !borrows_temporary<A>,
        "this operation was made from a temporary, such as a std::vector that a function returns, which is "
        "destroyed at the end of the statement: co_await the operation itself, or give the temporary a name "
        "and keep it until the operation has ended");
}

/// An operation that was made from a temporary. Awaitable as `Op` is, but no `Op`: it does not lose its mark by a conversion.
template <class Op>
class [[nodiscard]] of_temporary : private Op {
public:
    static constexpr bool borrows_temporary = true;

    using Op::Op;
    using typename Op::value_type;
    of_temporary(of_temporary&&) = default;

    using Op::await_ready;
    using Op::await_resume;
    using Op::await_suspend;
    using Op::bind;
    using Op::ended_at_once;
    using Op::take_result;
};

}  // namespace rdmacoro::detail
