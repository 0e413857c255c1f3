// The base of every awaitable operation: a value that lives in the frame that awaits it.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro {

namespace detail {

/// As the owner of an operation: it is one of a default-constructed or moved-from object, and ends with an error. Not a scheduler.
alignas(scheduler) inline constinit std::byte owner_of_nothing[sizeof(scheduler)] = {};
[[nodiscard]] inline scheduler* no_scheduler() noexcept {
    return reinterpret_cast<scheduler*>(owner_of_nothing);
}

/// The part of an operation that does not depend on its type: its state, the awaiting coroutine and the stop request.
class operation_base : public ready_node {
public:
    operation_base(const operation_base&) = delete;
    operation_base& operator=(const operation_base&) = delete;

    /// Set by the awaiting coroutine's promise before the operation begins. An operation of one scheduler that is awaited
    /// on another ends the process with a message.
    void bind(const environment& env) noexcept {
        if (owner_ != env.owner) bind_owner(env.owner);
        stop = env.stop;
    }

    /// Whether it knows the scheduler that it runs on.
    [[nodiscard]] bool has_owner() const noexcept { return owner_ != nullptr; }

    [[nodiscard]] bool done() const noexcept { return state_ >= state::done; }
    /// Whether it has begun; it may have ended since.
    [[nodiscard]] bool begun() const noexcept { return state_ != state::fresh; }
    [[nodiscard]] scheduler& owner() const noexcept { return *owner_; }

protected:
    enum class state : std::uint8_t { fresh, pending, done, taken };  // `taken` unless NDEBUG is defined

    explicit operation_base(scheduler* owner) noexcept : owner_(owner) {}

    /// Only an operation that has not begun moves.
    operation_base(operation_base&& other) noexcept : owner_(other.owner_) {
        stop = other.stop;
        if (other.state_ != state::fresh) [[unlikely]]
            moved_too_late();
    }

    ~operation_base() {
        if (state_ == state::pending) [[unlikely]]
            destroyed_too_early();
    }

    /// Whether the awaiting coroutine goes on without being suspended.
    [[nodiscard, gnu::always_inline]] bool goes_on() const noexcept {
        return owner_ == nullptr || owner_->may_go_on();
    }

    /// It has ended, but the awaiting coroutine must let others have their turn.
    void resume_later(std::coroutine_handle<> awaiting) noexcept;

    /// `on_stop_` becomes attached to the token, if there is one.
    void suspend(std::coroutine_handle<> awaiting, local_stop_callback::function stopped) noexcept {
        if (owner_ != scheduler::current()) [[unlikely]]
            require_thread_of(owner_);
        waiter = awaiting;
        if (stop.stop_possible()) {
            on_stop_.self = this;
            on_stop_.attach(stop, stopped);
        }
    }

    /// The operation has ended; the awaiting coroutine is resumed. Called by the derived operation, once.
    void complete() noexcept {
        state_ = state::done;
        if (waiter) {
            on_stop_.detach();
            owner_->make_ready(*this);
        }
    }

    /// As `complete`, called by a function of the user's, which may be on the wrong thread.
    void complete_by_user() noexcept {
        if (owner_ != scheduler::current()) [[unlikely]]
            require_thread_of(owner_, "what coroutines of", "wait for was changed");
        complete();
    }

    struct stop_hook : local_stop_callback {
        operation_base* self;  // set while attached
    };

    scheduler* owner_;
    stop_hook on_stop_;
    state state_ = state::fresh;

    [[gnu::always_inline]] void bind_owner(scheduler* owner) noexcept {
        if (owner_ == nullptr) {
            owner_ = owner;
        } else if (owner != nullptr) [[unlikely]] {
            awaited_elsewhere(*owner_, *owner);
        }
    }

    /// Its outcome is taken, which happens once.
    [[gnu::always_inline]] void take() noexcept {
#if !defined(NDEBUG)
        if (state_ == state::taken) awaited_again();
        state_ = state::taken;
#endif
    }

private:
    [[noreturn, gnu::cold]] static void awaited_again() noexcept;
    [[noreturn, gnu::cold]] static void moved_too_late() noexcept;
    [[noreturn, gnu::cold]] static void destroyed_too_early() noexcept;
};

}  // namespace detail

/// CRTP base of an awaitable operation that ends with a `T`. `Derived` has
///  - `void start() noexcept`: begins; calls `complete()` when it has ended, now or later;
///  - `void cancel() noexcept`: called when the token is stopped while it is pending; causes `complete()` to be called, now
///    or later, once no peer and no device can access the caller's memory;
///  - `void finish_canceled() noexcept`: sets the outcome `errc::canceled`; called instead of `start`;
///  - where its constructor's scheduler may be `no_scheduler()`: `void finish_of_nothing() noexcept`: sets the outcome
///    `errc::invalid_argument`; called instead of `start`;
///  - if it can tell what its error is about: `error_facts facts() const noexcept`, and `[[noreturn]] void throw_failure() const`,
///    which throws the error with text; both are called after `outcome`;
///  - if it tells for how long it waits: `void note_wait() noexcept`, called when the awaiting coroutine is suspended for it;
///  - `result<T> outcome() noexcept`: the value or error; called once, when it has ended.
///
/// Lazy: begins when awaited, or when passed to `start`. If its stop token is stopped already, the operation does
/// nothing and ends canceled. Destroying a pending operation ends the process with a message. An operation is awaited once: unless
/// `NDEBUG` is defined, awaiting it again ends the process with a message, else it ends with the first outcome, or what is left of it.
///
/// `Base` is `operation_base` or derived from it, for layers that refer to operations of several types.
template <class Derived, class T, class Base = detail::operation_base>
class basic_operation : public Base {
public:
    using value_type = T;

    /// As in the base. An operation of nothing ends here.
    void bind(const environment& env) noexcept {
        if (this->owner_ != env.owner) {
            if constexpr (requires(Derived& d) { d.finish_of_nothing(); }) {
                if (this->owner_ == detail::no_scheduler()) [[unlikely]] {
                    this->owner_ = env.owner;
                    self().finish_of_nothing();
                    state_ = state::done;
                    stop = env.stop;
                    return;
                }
            }
            this->bind_owner(env.owner);
        }
        stop = env.stop;
    }

    bool await_ready() noexcept {
        if (state_ == state::fresh) begin();
        if (state_ >= state::done) return this->goes_on();
        if (stop.stop_requested()) [[unlikely]] {  // before it was awaited, or while it began
            self().cancel();
            return state_ == state::done && this->goes_on();
        }
        return false;
    }

    void await_suspend(std::coroutine_handle<> awaiting) noexcept {
        if (state_ >= state::done) return this->resume_later(awaiting);
        if constexpr (requires(Derived& d) { d.note_wait(); }) self().note_wait();
        this->suspend(awaiting, &stopped);
    }

    /// After `await_ready` returned false: whether it has ended all the same, and only lets others have their turn.
    [[nodiscard]] bool ended_at_once() const noexcept { return state_ >= state::done; }

    T await_resume() {
        this->take();
        result<T> ended = self().outcome();
        if (!ended) [[unlikely]] {
            if constexpr (requires(Derived& d) { d.throw_failure(); }) {
                self().throw_failure();
            } else {
                detail::throw_error(ended.error(), ended.facts());
            }
        }
        if constexpr (!std::is_void_v<T>) return *std::move(ended);
    }

    /// As `await_resume`, but returns the error instead of throwing it.
    [[nodiscard, gnu::always_inline]] result<T> take_result() noexcept {
        this->take();
        if constexpr (requires(Derived& d) { d.facts(); }) {
            result<T> ended = self().outcome();
            if (!ended) [[unlikely]]
                ended.set_facts(self().facts());
            return ended;
        } else {
            return self().outcome();
        }
    }

    /// Begins without awaiting. See `start`.
    void begin() noexcept {
        if (state_ != state::fresh) [[unlikely]]  // of nothing: it has ended
            return;
#if !defined(NDEBUG)
        if (this->owner_ != scheduler::current()) detail::require_thread_of(this->owner_);
#endif
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
    using Base::state_;
    using Base::stop;
    using typename Base::state;
    using typename Base::stop_hook;

    [[gnu::cold]] static void stopped(local_stop_callback& hook) noexcept {
        auto* const op = static_cast<Derived*>(static_cast<stop_hook&>(hook).self);
        detail::require_thread_of(op->owner_, "an operation of", "was asked to stop");
        if (!op->done()) op->cancel();
    }

    [[gnu::always_inline]] Derived& self() noexcept { return static_cast<Derived&>(*this); }
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/operation.ipp>
#endif
