// Helper coroutines that await on behalf of an object: the children of task groups, when_all, when_any, start.
#pragma once

#include <rdmacoro/coro/awaitable.hpp>
#include <rdmacoro/coro/detail/outcome.hpp>
#include <rdmacoro/coro/detail/promise_base.hpp>

namespace rdmacoro::detail {

/// The object a child runs for. Outlives it.
class child_owner {
public:
    child_owner(const child_owner&) = delete;
    child_owner& operator=(const child_owner&) = delete;

    /// The child ends by an exception. Called inside its catch block; `child_ended` follows.
    virtual void child_failed(std::exception_ptr failure) noexcept = 0;

    /// The child's frame is destroyed, with all it held. Returns the coroutine to resume.
    virtual std::coroutine_handle<> child_ended() noexcept = 0;

protected:
    child_owner() noexcept = default;
    ~child_owner() = default;
};

/// A coroutine that destroys its own frame when it ends, and then notifies its owner, the first argument of its function.
/// Does not begin by itself.
struct child {
    class promise_type : public promise_base, public ready_node {
    public:
        template <class... Args>
        explicit promise_type(child_owner& of, Args&...) noexcept : for_(&of) {}

        child get_return_object() noexcept;
        std::suspend_always initial_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept;

        struct final_awaiter {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept;
            void await_resume() noexcept {}
        };
        final_awaiter final_suspend() noexcept { return {}; }

    private:
        child_owner* for_;
    };

    std::coroutine_handle<promise_type> frame;

    /// It begins with the scheduler's next batch of ready coroutines.
    void begin_soon(const environment& env) noexcept;
    /// It begins at once, and runs until it first suspends.
    void begin_now(const environment& env) noexcept;
};

/// Awaits `what` and stores its value in `slot`.
template <class A, class Slot>
child run_into(Slot& slot, std::remove_reference_t<A>& what) {
    if constexpr (std::is_void_v<await_result_t<A>>) {
        co_await static_cast<A&&>(what);
    } else {
        slot.set(co_await static_cast<A&&>(what));
    }
}

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/child.ipp>
#endif
