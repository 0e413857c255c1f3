// The base of every awaitable operation: a value that lives in the frame that awaits it.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <cstdint>

namespace rdmacoro {

namespace detail {

/// What operations of all types share: where they stand, who waits, and the stop request.
class operation_base : public ready_node {
public:
    operation_base(const operation_base&) = delete;
    operation_base& operator=(const operation_base&) = delete;

    /// Set by the awaiting coroutine's promise before the operation begins.
    void bind(const environment& env) noexcept {
        if (owner_ == nullptr) owner_ = env.owner;
        stop = env.stop;
    }

    [[nodiscard]] bool done() const noexcept { return state_ == state::done; }
    [[nodiscard]] scheduler& owner() const noexcept { return *owner_; }

protected:
    enum class state : std::uint8_t { fresh, pending, done };

    explicit operation_base(scheduler* owner) noexcept : owner_(owner) {}

    /// Only an operation that has not begun moves.
    operation_base(operation_base&& other) noexcept : owner_(other.owner_) {
        stop = other.stop;
        if (other.state_ != state::fresh) fatal("an operation was moved after it had begun");
    }

    ~operation_base() {
        if (state_ == state::pending) [[unlikely]]
            fatal("an operation was destroyed while pending; await it first");
    }

    /// The operation has ended; whoever waits goes on. For use by the derived operation, once.
    void complete() noexcept {
        state_ = state::done;
        if (waiter) {
            on_stop_.detach();
            owner_->make_ready(*this);
        }
    }

    struct stop_hook : local_stop_callback {
        operation_base* self;  // set while attached
    };

    scheduler* owner_;
    stop_hook on_stop_;
    state state_ = state::fresh;
};

}  // namespace detail

/// CRTP base of an awaitable operation that ends with a `T`. `Derived` has
///  - `void start() noexcept`: begins; calls `complete()` when it has ended, now or later;
///  - `void cancel() noexcept`: asked to stop while pending; sees to it that `complete()` is called once no peer and no
///    device can touch the caller's memory, now or later;
///  - `void finish_canceled() noexcept`: sets the outcome `errc::canceled` (nothing was begun);
///  - `result<T> outcome() noexcept`: the value or error, asked for once, when it has ended.
///
/// Lazy: begins when awaited, or when handed to `start`. An operation whose stop token is stopped already does nothing
/// and ends canceled. Destroying one that is pending ends the process with a message.
///
/// `Base` may stand between: a class derived from `operation_base` that other layers know the operation by.
template <class Derived, class T, class Base = detail::operation_base>
class basic_operation : public Base {
public:
    using value_type = T;

    bool await_ready() noexcept {
        if (state_ == state::fresh) {
            begin();
        } else if (state_ == state::pending && stop.stop_requested()) {
            self().cancel();
        }
        return state_ == state::done;
    }

    void await_suspend(std::coroutine_handle<> awaiting) noexcept {
        this->waiter = awaiting;
        if (stop.stop_possible()) {
            on_stop_.self = this;
            on_stop_.attach(stop, [](local_stop_callback& hook) noexcept {
                auto* op = static_cast<Derived*>(static_cast<stop_hook&>(hook).self);
                if (!op->done()) op->cancel();
            });
        }
    }

    T await_resume() {
        result<T> ended = self().outcome();
        if (!ended) [[unlikely]]
            detail::throw_error(ended.error(), ended.info());
        if constexpr (!std::is_void_v<T>) return *std::move(ended);
    }

    /// What `await_resume` gives, without throwing.
    [[nodiscard]] result<T> take_result() noexcept { return self().outcome(); }

    /// Begins without awaiting. See `start`.
    void begin() noexcept {
        state_ = state::pending;
        if (stop.stop_requested()) [[unlikely]] {
            self().finish_canceled();
            state_ = state::done;
        } else {
            self().start();
        }
    }

protected:
    using Base::Base;

private:
    using Base::on_stop_;
    using Base::state_;
    using Base::stop;
    using typename Base::state;
    using typename Base::stop_hook;

    Derived& self() noexcept { return static_cast<Derived&>(*this); }
};

}  // namespace rdmacoro
