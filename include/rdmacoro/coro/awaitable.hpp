// The concept of an awaitable, and the type of its result.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>

#include <concepts>
#include <coroutine>
#include <type_traits>

namespace rdmacoro {

namespace detail {

template <class A>
concept awaiter = requires(A& a, std::coroutine_handle<> awaiting) {
    { a.await_ready() } -> std::convertible_to<bool>;
    a.await_suspend(awaiting);
    a.await_resume();
};

template <class A>
concept gives_awaiter = requires(A&& a) {
    { static_cast<A&&>(a).operator co_await() } -> awaiter;
};

template <class A>
struct await_result;
template <awaiter A>
struct await_result<A> {
    using type = decltype(std::declval<A&>().await_resume());
};
template <class A>
    requires(!awaiter<A> && gives_awaiter<A>)
struct await_result<A> {
    using type = decltype(std::declval<A>().operator co_await().await_resume());
};

}  // namespace detail

/// An argument of the adaptors of this room (`timeout`, `with_stop`, `as_result`, `when_all`, ...).
///
/// Semantic requirements:
///  1. It has `await_ready`, `await_suspend(std::coroutine_handle<>)` and `await_resume`, or a member `operator
///     co_await` that returns such an object.
///  2. If it has `bind(const environment&)`, that is called once before it is awaited; it then uses the environment's
///     scheduler and ends early, with `errc::canceled`, when the environment's token is stopped. An awaitable without
///     `bind` cannot be canceled: the adaptors wait until it ends by itself.
///  3. It ends exactly once, on its scheduler's thread, and only then lets the awaiting coroutine be resumed.
///  4. An rvalue can be moved until it is awaited; an lvalue is used where it is.
template <class A>
concept awaitable = detail::awaiter<std::remove_reference_t<A>> || detail::gives_awaiter<A>;

/// The type of `co_await` on an awaitable of type `A`.
template <awaitable A>
using await_result_t = typename detail::await_result<
    std::conditional_t<detail::awaiter<std::remove_reference_t<A>>, std::remove_reference_t<A>, A>>::type;

}  // namespace rdmacoro
