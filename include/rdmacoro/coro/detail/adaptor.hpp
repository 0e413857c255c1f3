// adaptor: the base of operations around another one, such as timeout, with_stop and as_result.
#pragma once

#include <rdmacoro/coro/awaitable.hpp>
#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/detail/unbound_wait.hpp>
#include <rdmacoro/coro/result.hpp>

#include <memory>
#include <new>
#include <system_error>

namespace rdmacoro::detail {

/// An awaitable that has `take_result()`, which takes the outcome without throwing.
template <class A>
concept gives_result = requires(A& a) { a.take_result(); };

/// Whether an awaitable has ended though its coroutine is to be suspended. See `basic_operation::ended_at_once`.
template <class Awaiter>
[[nodiscard, gnu::always_inline]] inline bool has_ended_at_once(const Awaiter& of) noexcept {
    if constexpr (requires { of.ended_at_once(); }) {
        return of.ended_at_once();
    } else {
        return false;
    }
}

/// Holds an `A` (a value, or a reference to the user's lvalue) and awaits it on behalf of its owner.
template <class A>
class adapted {
public:
    using value_type = await_result_t<A>;

    [[gnu::always_inline]] explicit adapted(A&& inner) : inner_(static_cast<A&&>(inner)) {}

    [[gnu::always_inline]] void bind(const environment& env) noexcept {
        if constexpr (takes_environment<A>) inner_.bind(env);
        wait_.bind(env);
    }
    [[gnu::always_inline]] bool await_ready() { return inner_.await_ready(); }
    [[nodiscard, gnu::always_inline]] bool ended_at_once() const noexcept {
        return has_ended_at_once(inner_);
    }
    [[gnu::always_inline]] auto await_suspend(std::coroutine_handle<> awaiting) {
        wait_.began();
        return inner_.await_suspend(awaiting);
    }
    [[gnu::always_inline]] value_type await_resume() {
        wait_.ended();
        return inner_.await_resume();
    }
    [[gnu::always_inline]] auto take_result()
        requires gives_result<std::remove_reference_t<A>>
    {
        wait_.ended();
        return inner_.take_result();
    }

private:
    A inner_;
    [[no_unique_address]] wait_for<A> wait_;
};

/// The same for an awaitable with `operator co_await`: its awaiter is made in place, when it is awaited.
template <class A>
    requires(!awaiter<std::remove_reference_t<A>> && gives_awaiter<A>)
class adapted<A> {
    using awaiter_type = decltype(std::declval<A>().operator co_await());

public:
    using value_type = await_result_t<A>;

    [[gnu::always_inline]] explicit adapted(A&& inner) : inner_(static_cast<A&&>(inner)) {}
    adapted(adapted&& other) noexcept(std::is_nothrow_move_constructible_v<A>)
        : inner_(static_cast<A&&>(other.inner_)) {}
    ~adapted() {
        if (made_) std::destroy_at(&awaiter_);
    }

    [[gnu::always_inline]] void bind(const environment& env) noexcept {
        if constexpr (takes_environment<A>) inner_.bind(env);
        wait_.bind(env);
    }
    bool await_ready() {
        ::new (static_cast<void*>(std::addressof(awaiter_)))
            awaiter_type(static_cast<A&&>(inner_).operator co_await());
        made_ = true;
        return awaiter_.await_ready();
    }
    [[nodiscard, gnu::always_inline]] bool ended_at_once() const noexcept {
        return has_ended_at_once(awaiter_);
    }
    [[gnu::always_inline]] auto await_suspend(std::coroutine_handle<> awaiting) {
        wait_.began();
        return awaiter_.await_suspend(awaiting);
    }
    [[gnu::always_inline]] value_type await_resume() {
        wait_.ended();
        return awaiter_.await_resume();
    }

private:
    A inner_;
    union {
        awaiter_type awaiter_;
    };
    bool made_ = false;
    [[no_unique_address]] wait_for<A> wait_;
};

/// Accepted by adaptors: an lvalue, or an awaitable that can be moved. A started operation cannot: pass the variable that
/// holds it.
template <class A>
concept adaptable = awaitable<A> && (std::is_lvalue_reference_v<A> || std::move_constructible<A>);

/// The hooks of an adaptor that changes nothing until its operation has ended.
struct no_hooks {
    [[nodiscard]] static const environment& bind(const environment& env) noexcept { return env; }
    static void before_begin() noexcept {}
    static void before_wait() noexcept {}
    static void after_end() noexcept {}
};

/// The hooks of an adaptor that can stop its operation. Compiled once for all operations.
class stopping_hooks {
public:
    [[nodiscard]] environment bind(const environment& env) noexcept;

protected:
    stopping_hooks() noexcept = default;
    stopping_hooks(stopping_hooks&&) noexcept {}  // only before it is bound
    ~stopping_hooks() = default;

    scheduler& owner();

    local_stop_source source_;  // the operation runs with its token

private:
    scheduler* owner_ = nullptr;
};

/// An operation around another one. `Hooks` is a part that does not depend on the operation, with
///  - `bind(environment)`: returns the environment that the operation runs in;
///  - `before_begin()`, `before_wait()`, `after_end()`: called before the operation begins, before it waits, and before
///    its outcome is taken.
template <class A, class Hooks>
class adaptor {
public:
    using value_type = typename adapted<A>::value_type;
    static constexpr bool borrows_temporary = detail::borrows_temporary<A>;

    [[gnu::always_inline]] void bind(const environment& env) noexcept { inner_.bind(hooks_.bind(env)); }
    [[gnu::always_inline]] bool await_ready() {
        hooks_.before_begin();
        return inner_.await_ready();
    }
    [[gnu::always_inline]] auto await_suspend(std::coroutine_handle<> awaiting) {
        if (!inner_.ended_at_once()) hooks_.before_wait();
        return inner_.await_suspend(awaiting);
    }
    [[nodiscard, gnu::always_inline]] bool ended_at_once() const noexcept { return inner_.ended_at_once(); }
    [[gnu::always_inline]] value_type await_resume() {
        hooks_.after_end();
        return inner_.await_resume();
    }
    /// As `await_resume`, but returns the error instead of throwing it.
    [[gnu::always_inline]] auto take_result()
        requires gives_result<adapted<A>>
    {
        hooks_.after_end();
        return inner_.take_result();
    }

protected:
    template <class... Args>
    [[gnu::always_inline]] explicit adaptor(A&& inner, Args&&... hooks)
        : hooks_(static_cast<Args&&>(hooks)...), inner_(static_cast<A&&>(inner)) {
        if constexpr (std::is_lvalue_reference_v<A>) must_outlive_statement<A>();
    }
    adaptor(adaptor&&) = default;  // only before it is awaited

    Hooks hooks_;  // destroyed last: the operation is attached to the source
    adapted<A> inner_;
};

/// The value that `get` returns, or the error that it throws, as a result. Exceptions of other types pass through.
template <class T, class Get>
result<T> catch_error(Get get) {
    try {
        if constexpr (std::is_void_v<T>) {
            get();
            return {};
        } else {
            return get();
        }
    } catch (const error& failed) {
        return {failed.code(), failed.facts()};
    } catch (const std::system_error& failed) {
        if (!failed.code()) throw;  // a code that means no error would be a result without a value
        return failed.code();
    }
}

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/adaptor.ipp>
#endif
