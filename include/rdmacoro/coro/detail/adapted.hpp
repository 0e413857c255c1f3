// An awaitable inside another: what the adaptors (timeout, with_stop, as_result) keep of the one they adapt.
#pragma once

#include <rdmacoro/coro/awaitable.hpp>
#include <rdmacoro/coro/result.hpp>

#include <memory>
#include <new>

namespace rdmacoro::detail {

/// Has an outcome that can be taken without throwing.
template <class A>
concept gives_result = requires(A& a) { a.take_result(); };

/// Holds an `A` (a value, or a reference where the user gave an lvalue) and awaits it on behalf of its owner.
template <class A>
class adapted {
public:
    using value_type = await_result_t<A>;

    explicit adapted(A&& inner) : inner_(static_cast<A&&>(inner)) {}

    void bind(const environment& env) noexcept {
        if constexpr (requires { inner_.bind(env); }) inner_.bind(env);
    }
    bool await_ready() { return inner_.await_ready(); }
    auto await_suspend(std::coroutine_handle<> awaiting) { return inner_.await_suspend(awaiting); }
    value_type await_resume() { return inner_.await_resume(); }
    auto take_result()
        requires gives_result<std::remove_reference_t<A>>
    {
        return inner_.take_result();
    }

private:
    A inner_;
};

/// The same for what gives its awaiter by `operator co_await`: that is made in place, when it is awaited.
template <class A>
    requires(!awaiter<std::remove_reference_t<A>> && gives_awaiter<A>)
class adapted<A> {
    using awaiter_type = decltype(std::declval<A>().operator co_await());

public:
    using value_type = await_result_t<A>;

    explicit adapted(A&& inner) : inner_(static_cast<A&&>(inner)) {}
    adapted(adapted&& other) noexcept(std::is_nothrow_move_constructible_v<A>)
        : inner_(static_cast<A&&>(other.inner_)) {}
    ~adapted() {
        if (made_) std::destroy_at(&awaiter_);
    }

    void bind(const environment& env) noexcept {
        if constexpr (requires { inner_.bind(env); }) inner_.bind(env);
    }
    bool await_ready() {
        ::new (static_cast<void*>(std::addressof(awaiter_)))
            awaiter_type(static_cast<A&&>(inner_).operator co_await());
        made_ = true;
        return awaiter_.await_ready();
    }
    auto await_suspend(std::coroutine_handle<> awaiting) { return awaiter_.await_suspend(awaiting); }
    value_type await_resume() { return awaiter_.await_resume(); }

private:
    A inner_;
    union {
        awaiter_type awaiter_;
    };
    bool made_ = false;
};

/// What an adaptor takes: an lvalue, or something that can be moved in. A started operation is neither as an rvalue:
/// name it, and give the name.
template <class A>
concept adaptable = awaitable<A> && (std::is_lvalue_reference_v<A> || std::move_constructible<A>);

/// Runs `get`, which gives a value or throws, and gives the same as a result. What is not an error of an operation goes
/// through.
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
        return {failed.code(), failed.info()};
    } catch (const std::system_error& failed) {
        return failed.code();
    }
}

}  // namespace rdmacoro::detail
