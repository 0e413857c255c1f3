// task<T>: a lazy coroutine, awaited once by one parent.
#pragma once

#include <rdmacoro/coro/detail/promise_base.hpp>
#include <rdmacoro/coro/detail/stop_bridge.hpp>
#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <exception>
#include <optional>

namespace rdmacoro {

namespace detail {

/// What tasks of all value types share: whom to resume, what to hand down.
class task_promise_base : public promise_base {
public:
    struct final_awaiter {
        bool await_ready() noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
            return ended.promise().hand_over(ended.promise().continuation_);
        }
        void await_resume() noexcept {}
    };

    std::suspend_always initial_suspend() noexcept { return {}; }
    final_awaiter final_suspend() noexcept { return {}; }
    void unhandled_exception() noexcept { failure_ = std::current_exception(); }

    void set_continuation(std::coroutine_handle<> continuation) noexcept { continuation_ = continuation; }
    [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

    /// What `await_suspend` returns to go on with `next`. See `scheduler::transfer`.
    std::coroutine_handle<> hand_over(std::coroutine_handle<> next) const noexcept {
        scheduler* owner = get_environment().owner;
        return owner != nullptr ? owner->transfer(next) : next;
    }

private:
    std::coroutine_handle<> continuation_ = std::noop_coroutine();
    std::exception_ptr failure_{};
};

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
        if (failure()) std::rethrow_exception(failure());
        return std::move(*value_);
    }

private:
    std::optional<T> value_;
};

template <class T>
class task_promise<T&> final : public task_promise_base {
public:
    task<T&> get_return_object() noexcept;
    void return_value(T& value) noexcept { value_ = &value; }
    T& take() {
        if (failure()) std::rethrow_exception(failure());
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
    void take() {
        if (failure()) std::rethrow_exception(failure());
    }
};

}  // namespace detail

/// A coroutine that starts when it is awaited and whose awaiter goes on when it ends, by symmetric transfer: chains of
/// any depth use no stack. It hands its scheduler and its stop token to all it awaits. Frames are recycled.
///
/// Await it at most once. To run it without awaiting, give its function to a `task_group`; to run it from outside any
/// coroutine, give it to `scheduler::run`. A task that has begun must end before it is destroyed.
///
/// Awaitable.
/// Completes: when the coroutine has ended, with what it returns.
/// Buffers: what its arguments refer to must live until then; the arguments themselves live in its frame.
/// Concurrency: any number of tasks run at a time; each is awaited once.
/// Errors: whatever exception leaves the coroutine.
/// Cancellation: it runs with the awaiting task's token; what it awaits ends canceled, and so, normally, does it.
/// Example:
///     task<int> answer() { co_return 42; }
///     int value = co_await answer();
template <class T = void>
class [[nodiscard]] task {
public:
    using promise_type = detail::task_promise<T>;
    using value_type = T;

    task() noexcept = default;
    explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
    task(task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
    task& operator=(task&& other) noexcept {
        if (this != &other) {
            if (frame_) frame_.destroy();
            frame_ = std::exchange(other.frame_, {});
        }
        return *this;
    }
    ~task() {
        if (frame_) frame_.destroy();
    }

    void bind(const environment& env) noexcept { frame_.promise().set_environment(env); }

    class awaiter {
    public:
        explicit awaiter(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
            frame_.promise().set_continuation(awaiting);
            return frame_.promise().hand_over(frame_);
        }
        T await_resume() { return frame_.promise().take(); }

    private:
        std::coroutine_handle<promise_type> frame_;
    };

    /// Awaiting runs it. Precondition: it holds a coroutine that has not begun.
    awaiter operator co_await() && noexcept { return awaiter(frame_); }

    /// For schedulers and wrappers: the frame, still owned by this task.
    [[nodiscard]] std::coroutine_handle<promise_type> handle() const noexcept { return frame_; }

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
    auto frame = main.handle();
    if (!frame) detail::throw_error(errc::invalid_argument, "scheduler::run: an empty task");
    frame.promise().set_environment({this, frame.promise().get_environment().stop});
    detail::ready_node root;
    root.waiter = frame;
    root.stop = frame.promise().get_environment().stop;
    make_ready(root);
    run_until([&] { return frame.done(); });
    return frame.promise().take();
}

template <class T>
T scheduler::run(task<T> main, std::stop_token stop) {
    if (!main.handle()) detail::throw_error(errc::invalid_argument, "scheduler::run: an empty task");
    local_stop_source source;
    detail::stop_bridge bridge;
    if (stop.stop_requested()) {
        source.request_stop();
    } else {
        bridge.connect(*this, stop, source);
    }
    main.bind({this, source.get_token()});
    return run(std::move(main));
}

}  // namespace rdmacoro
