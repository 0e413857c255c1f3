// task<T>: a lazy coroutine, awaited once by one parent.
#pragma once

#include <rdmacoro/coro/detail/maybe.hpp>
#include <rdmacoro/coro/detail/promise_base.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <concepts>
#include <exception>
#include <stop_token>
#include <utility>

namespace rdmacoro {

namespace detail {

/// The part of a task's promise that does not depend on its value: the awaiting coroutine and the exception.
class task_promise_base : public promise_base {
public:
    task_promise_base() noexcept {}
    task_promise_base(const task_promise_base&) = delete;
    task_promise_base& operator=(const task_promise_base&) = delete;

    struct final_awaiter {
        task_promise_base* promise;

        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<>) noexcept {
            return promise->transfer(promise->continuation_);
        }
        void await_resume() noexcept {}
    };

    std::suspend_always initial_suspend() noexcept { return {}; }
    final_awaiter final_suspend() noexcept { return {this}; }
    /// A task that fails counts as an operation: one that throws before it has waited for anything must let others have their turn, too.
    void unhandled_exception() noexcept;

    /// Sets the coroutine to resume at the end. Returns the handle that an `await_suspend` must return to go on with
    /// `own`.
    std::coroutine_handle<> begin(std::coroutine_handle<> own,
                                  std::coroutine_handle<> continuation) noexcept {
        continuation_ = continuation;
        awaited_ = true;
        return transfer(own);
    }

protected:
    /// Rethrows the coroutine's exception.
    void check() const {
        if (failure_) [[unlikely]]
            rethrow();
    }

private:
    [[noreturn]] void rethrow() const;

    std::coroutine_handle<> transfer(std::coroutine_handle<> next) const noexcept {
        scheduler* const owner = get_environment().owner;
        return owner != nullptr ? owner->transfer(next) : next;
    }

    std::coroutine_handle<> continuation_ = std::noop_coroutine();
    std::exception_ptr failure_{};
    bool awaited_ = false;  // by a coroutine
    union {
        ready_node later_;  // that coroutine, where others have their turn before it
    };
};

/// Ends the process: a task that cannot run was awaited.
[[noreturn, gnu::cold]] void awaited_wrongly(bool ended) noexcept;

template <class T>
class task_promise final : public task_promise_base {
public:
    task<T> get_return_object() noexcept;

    template <class U = T>
        requires std::constructible_from<T, U&&>
    void return_value(U&& value) {
        value_.emplace(static_cast<U&&>(value));
    }

    T take() {
        check();
        return *std::move(value_);
    }

private:
    maybe<T> value_;
};

template <class T>
class task_promise<T&> final : public task_promise_base {
public:
    task<T&> get_return_object() noexcept;
    void return_value(T& value) noexcept { value_ = &value; }
    T& take() {
        check();
        return *value_;
    }

private:
    T* value_ = nullptr;
};

template <>
class task_promise<void> final : public task_promise_base {
public:
    inline task<void> get_return_object() noexcept;
    void return_void() noexcept {}
    void take() { check(); }
};

}  // namespace detail

/// A coroutine that starts when it is awaited and resumes the awaiting one when it ends, by symmetric transfer: chains of
/// any depth use no stack. It passes its scheduler and its stop token to all it awaits. Frames are recycled.
///
/// Await it at most once. To run it without awaiting, give its function to a `task_group`; to run it from outside any
/// coroutine, give it to `scheduler::run`. A task that has begun must end before it is destroyed.
///
/// Awaitable.
/// Completes: when the coroutine has ended, with its value.
/// Buffers: memory that its arguments refer to must live until then; the arguments themselves live in its frame.
/// Concurrency: any number of tasks run at a time; each is awaited once.
/// Errors: any exception that leaves the coroutine.
/// Cancellation: it runs with the awaiting task's token; the operation it awaits ends canceled, and so, normally, does it.
/// Example:
///     task<int> answer() { co_return 42; }
///     int value = co_await answer();
template <class T = void>
class [[nodiscard]] task {
public:
    using promise_type = detail::task_promise<T>;
    using value_type = T;

    task() noexcept = default;
    /// Made by the coroutine's promise.
    [[gnu::always_inline]] explicit task(std::coroutine_handle<promise_type> frame) noexcept
        : frame_(frame) {}
    task(task&& other) noexcept : frame_(other.frame_) { other.frame_ = {}; }
    task& operator=(task&& other) noexcept {
        if (this != &other) {
            if (frame_) frame_.destroy();
            frame_ = other.frame_;
            other.frame_ = {};
        }
        return *this;
    }
    ~task() {
        if (frame_) frame_.destroy();
    }

    /// Called by `co_await`: the scheduler and the stop token of the task. Ends the process where it holds no coroutine, or one that
    /// has ended.
    [[gnu::always_inline]] void bind(const environment& env) noexcept {
        if (!frame_ || frame_.done()) [[unlikely]]
            detail::awaited_wrongly(static_cast<bool>(frame_));
        frame_.promise().set_environment(env);
    }

    class awaiter {
    public:
        [[gnu::always_inline]] explicit awaiter(std::coroutine_handle<promise_type> frame) noexcept
            : frame_(frame) {}
        [[gnu::always_inline]] bool await_ready() noexcept { return false; }
        [[gnu::always_inline]] std::coroutine_handle<>
        await_suspend(std::coroutine_handle<> awaiting) noexcept {
            return frame_.promise().begin(frame_, awaiting);
        }
        [[gnu::always_inline]] T await_resume() { return frame_.promise().take(); }

    private:
        std::coroutine_handle<promise_type> frame_;
    };

    /// Awaiting runs it. Precondition: it holds a coroutine that has not begun.
    [[gnu::always_inline]] awaiter operator co_await() && noexcept { return awaiter(frame_); }

    /// The frame, which this task owns no more: to be destroyed by the caller. For wrappers.
    [[nodiscard, gnu::always_inline]] std::coroutine_handle<promise_type> release() noexcept {
        return std::exchange(frame_, {});
    }
    /// The frame, still owned by this task. For schedulers and wrappers.
    [[nodiscard, gnu::always_inline]] std::coroutine_handle<promise_type> handle() const noexcept {
        return frame_;
    }

private:
    std::coroutine_handle<promise_type> frame_{};
};

namespace detail {
template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
    return task<T>(std::coroutine_handle<task_promise>::from_promise(*this));
}
template <class T>
task<T&> task_promise<T&>::get_return_object() noexcept {
    return task<T&>(std::coroutine_handle<task_promise>::from_promise(*this));
}
inline task<void> task_promise<void>::get_return_object() noexcept {
    return task<void>(std::coroutine_handle<task_promise>::from_promise(*this));
}
}  // namespace detail

template <class T>
T scheduler::run(task<T> main) {
    const auto frame = main.handle();
    run_frame(frame, frame ? &frame.promise() : nullptr);
    return frame.promise().take();
}

template <class T>
T scheduler::run(task<T> main, std::stop_token stop) {
    const auto frame = main.handle();
    run_frame(frame, frame ? &frame.promise() : nullptr, stop);
    return frame.promise().take();
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/task.ipp>
#endif
