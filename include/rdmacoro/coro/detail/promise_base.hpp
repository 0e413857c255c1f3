// The base of all promises: tasks' and those of the library's own helper coroutines.
#pragma once

#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/detail/unbound_wait.hpp>
#include <rdmacoro/coro/frame_pool.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <coroutine>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// Awaits an awaiter in place. g++ 12 moves, or fails to copy, an awaiter that `await_transform` returns by reference;
/// this one it may copy.
template <class A>
struct awaiter_reference {
    A& awaiter;

    [[gnu::always_inline]] bool await_ready() { return awaiter.await_ready(); }
    template <class Promise>
    [[gnu::always_inline]] auto await_suspend(std::coroutine_handle<Promise> awaiting) {
        return awaiter.await_suspend(awaiting);
    }
    [[gnu::always_inline]] decltype(auto) await_resume() { return awaiter.await_resume(); }
};

/// The same for the awaiter of an awaitable without `bind`: a reference, or what its `operator co_await` returns.
template <class A>
struct unbound_awaiter {
    A awaiter;
    unbound_wait wait;

    [[gnu::always_inline]] bool await_ready() { return awaiter.await_ready(); }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> awaiting) {
        wait.began();
        return awaiter.await_suspend(awaiting);  // the awaiting coroutine may have been resumed
    }
    decltype(auto) await_resume() {
        wait.ended();
        return awaiter.await_resume();
    }
};

template <class A>
concept has_member_co_await = requires(A&& a) { static_cast<A&&>(a).operator co_await(); };
template <class A>
concept has_free_co_await = requires(A&& a) { operator co_await(static_cast<A&&>(a)); };
/// An awaitable of other code, the awaiter of which is made when it is awaited.
template <class A>
concept makes_unbound_awaiter = !takes_environment<A> && !requires(A& a) { a.await_ready(); } &&
                                (has_member_co_await<A> || has_free_co_await<A>);

/// Frames from the pool, and the environment of the coroutine.
class promise_base {
public:
    /// Passes scheduler and stop token to every awaited object.
    template <class Awaitable>
    [[gnu::always_inline]] decltype(auto)
    await_transform(Awaitable&& awaitable) noexcept(!makes_unbound_awaiter<Awaitable>) {
        if constexpr (std::is_lvalue_reference_v<Awaitable>) must_outlive_statement<Awaitable>();
        constexpr bool binds = takes_environment<Awaitable>;
        if constexpr (binds) awaitable.bind(env_);
        if constexpr (makes_unbound_awaiter<Awaitable>) {
            if constexpr (has_member_co_await<Awaitable>) {
                using made = decltype(static_cast<Awaitable&&>(awaitable).operator co_await());
                return unbound_awaiter<made>{static_cast<Awaitable&&>(awaitable).operator co_await(),
                                             unbound_wait(env_.owner)};
            } else {
                using made = decltype(operator co_await(static_cast<Awaitable&&>(awaitable)));
                return unbound_awaiter<made>{operator co_await(static_cast<Awaitable&&>(awaitable)),
                                             unbound_wait(env_.owner)};
            }
        } else if constexpr (requires { awaitable.await_ready(); } && !binds) {
            return unbound_awaiter<std::remove_reference_t<Awaitable>&>{awaitable, unbound_wait(env_.owner)};
        } else if constexpr (requires { awaitable.await_ready(); }) {
            return awaiter_reference<std::remove_reference_t<Awaitable>>{awaitable};
        } else {
            constexpr bool here = requires { static_cast<Awaitable&&>(awaitable).operator co_await(); };
            constexpr bool moved = requires { std::move(awaitable).operator co_await(); };
            static_assert(here || !moved, "a task is awaited once; write co_await std::move(task)");
            return static_cast<Awaitable&&>(awaitable);
        }
    }

    void set_environment(const environment& env) noexcept { env_ = env; }
    [[nodiscard]] const environment& get_environment() const noexcept { return env_; }

    static void* operator new(std::size_t bytes) { return frame_pool::allocate(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        frame_pool::deallocate(memory, bytes);
    }

private:
    environment env_{};
};

}  // namespace rdmacoro::detail
