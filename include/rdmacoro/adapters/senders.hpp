// senders: operations and tasks of the toolkit as senders of std::execution (P2300), and a scheduler as one of its schedulers. Needs
// NVIDIA's stdexec, of September 2025 or newer.
#pragma once

#include <rdmacoro/coro/awaitable.hpp>
#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/root_task.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

#include <stdexec/execution.hpp>

#include <concepts>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace rdmacoro {

class execution_scheduler;

namespace detail {

/// The environment of a sender: where it completes.
struct sender_attributes {
    scheduler* on;

    template <class Completion>
    [[nodiscard]] execution_scheduler query(stdexec::get_completion_scheduler_t<Completion>) const noexcept;
};

/// A posted node that calls a member of the object it is a part of.
template <class Owner, void (Owner::*Function)() noexcept>
struct posted_call : posted_node {
    explicit posted_call(Owner& of) noexcept : owner(of) {
        call = [](posted_node& self) noexcept { (static_cast<posted_call&>(self).owner.*Function)(); };
    }
    Owner& owner;
};

/// `schedule`, connected.
template <class Receiver>
class schedule_state {
public:
    using operation_state_concept = stdexec::operation_state_t;

    schedule_state(scheduler& on, Receiver&& receiver) : on_(on), receiver_(std::move(receiver)) {}
    schedule_state(const schedule_state&) = delete;
    schedule_state& operator=(const schedule_state&) = delete;
    ~schedule_state() = default;

    void start() & noexcept { on_.post(begin_); }

private:
    void complete() noexcept {
        if (stdexec::get_stop_token(stdexec::get_env(receiver_)).stop_requested()) {
            stdexec::set_stopped(std::move(receiver_));
        } else {
            stdexec::set_value(std::move(receiver_));
        }
    }

    scheduler& on_;
    Receiver receiver_;
    posted_call<schedule_state, &schedule_state::complete> begin_{*this};
};

/// An awaitable of type `A`, connected.
template <class A, class Receiver>
class operation_state {
    using value_type = await_result_t<A>;
    struct nothing {};
    using held_type = std::conditional_t<std::is_void_v<value_type>, nothing, value_type>;

public:
    using operation_state_concept = stdexec::operation_state_t;

    operation_state(scheduler& on, A&& what, Receiver&& receiver)
        : on_(on), what_(std::move(what)), receiver_(std::move(receiver)) {}
    operation_state(const operation_state&) = delete;
    operation_state& operator=(const operation_state&) = delete;
    ~operation_state() = default;

    void start() & noexcept {
        if (scheduler::current() == &on_) {
            begin();
        } else {
            on_.post(begin_);
        }
    }

private:
    struct stop_request {
        operation_state* self;
        void operator()() const noexcept {
            self->stop_is_posted_ = true;
            self->on_.post(self->stop_);
        }
    };
    using stop_token = stdexec::stop_token_of_t<stdexec::env_of_t<Receiver>>;
    using stop_callback = stdexec::stop_callback_for_t<stop_token, stop_request>;

    /// The coroutine that awaits the operation for the receiver.
    static task<> await_for(operation_state* self, A what) {
        try {
            if constexpr (std::is_void_v<value_type>) {
                co_await std::move(what);
            } else {
                self->value_.emplace(co_await std::move(what));
            }
        } catch (...) {
            self->failure_ = std::current_exception();
        }
        self->on_.post(self->end_);  // when its frame is gone
    }

    // On the scheduler's thread.

    void begin() noexcept {
        const auto token = stdexec::get_stop_token(stdexec::get_env(receiver_));
        if (token.stop_requested()) return stdexec::set_stopped(std::move(receiver_));
        try {
            running_.emplace(on_, await_for(this, std::move(what_)));
        } catch (...) {
            return stdexec::set_error(std::move(receiver_), std::current_exception());
        }
        stopping_.emplace(token, stop_request{this});
    }
    void stop() noexcept {
        if (running_) running_->request_stop();
    }
    void end() noexcept {
        stopping_.reset();  // waits for a request that is being made
        if (stop_is_posted_) static_cast<void>(on_.withdraw(stop_));
        running_.reset();
        if (failure_ && is_canceled(failure_)) {
            stdexec::set_stopped(std::move(receiver_));
        } else if (failure_) {
            stdexec::set_error(std::move(receiver_), std::move(failure_));
        } else if constexpr (std::is_void_v<value_type>) {
            stdexec::set_value(std::move(receiver_));
        } else {
            stdexec::set_value(std::move(receiver_), *std::move(value_));
        }
    }

    scheduler& on_;
    A what_;
    Receiver receiver_;
    std::optional<root_task<>> running_;
    std::optional<stop_callback> stopping_;
    std::optional<held_type> value_;
    std::exception_ptr failure_;
    bool stop_is_posted_ = false;
    posted_call<operation_state, &operation_state::begin> begin_{*this};
    posted_call<operation_state, &operation_state::stop> stop_{*this};
    posted_call<operation_state, &operation_state::end> end_{*this};
};

/// The completions of an awaitable with a `T`.
template <class T>
struct sender_signatures {
    using type =
        stdexec::completion_signatures<stdexec::set_value_t(T), stdexec::set_error_t(std::exception_ptr),
                                       stdexec::set_stopped_t()>;
};
template <>
struct sender_signatures<void> {
    using type =
        stdexec::completion_signatures<stdexec::set_value_t(), stdexec::set_error_t(std::exception_ptr),
                                       stdexec::set_stopped_t()>;
};

}  // namespace detail

/// A scheduler of the toolkit as a scheduler of `std::execution`: what comes behind `schedule` runs on its thread. Cheap to copy.
/// The toolkit's scheduler outlives it, its senders and what is connected to them.
class execution_scheduler {
public:
    using scheduler_concept = stdexec::scheduler_t;  ///< it is one

    /// The sender of `schedule`: completes on the scheduler's thread, in a later turn, without allocating; stopped where the receiver's
    /// token was stopped before.
    class [[nodiscard]] sender {
    public:
        using sender_concept = stdexec::sender_t;  ///< it is one
        /// How it ends.
        using completion_signatures =
            stdexec::completion_signatures<stdexec::set_value_t(), stdexec::set_stopped_t()>;

        /// Made by `schedule`.
        explicit sender(scheduler& on) noexcept : on_(&on) {}
        /// For `stdexec::connect`.
        template <class Receiver>
        [[nodiscard]] auto connect(Receiver receiver) const {
            return detail::schedule_state<Receiver>(*on_, std::move(receiver));
        }
        /// For `stdexec::get_env`.
        [[nodiscard]] detail::sender_attributes get_env() const noexcept { return {on_}; }

    private:
        scheduler* on_;
    };

    /// Of `on`, which runs in its thread as long as senders are to complete.
    explicit execution_scheduler(scheduler& on) noexcept : on_(&on) {}

    /// For `stdexec::schedule`. From any thread.
    [[nodiscard]] sender schedule() const noexcept { return sender(*on_); }
    /// The toolkit's.
    [[nodiscard]] scheduler& owner() const noexcept { return *on_; }

    /// Whether they are of one scheduler.
    friend bool operator==(const execution_scheduler&, const execution_scheduler&) noexcept = default;

private:
    scheduler* on_;
};

namespace detail {
template <class Completion>
execution_scheduler sender_attributes::query(stdexec::get_completion_scheduler_t<Completion>) const noexcept {
    return execution_scheduler(*on);
}
}  // namespace detail

/// An awaitable of type `A` as a sender. Described at `as_sender`.
template <class A>
class [[nodiscard]] operation_sender {
public:
    using sender_concept = stdexec::sender_t;  ///< it is one
    /// How it ends.
    using completion_signatures = typename detail::sender_signatures<await_result_t<A>>::type;

    /// Made by `as_sender`.
    operation_sender(scheduler& on, A&& what) : on_(&on), what_(std::move(what)) {}

    /// For `stdexec::connect`.
    template <class Receiver>
    [[nodiscard]] auto connect(Receiver receiver) && {
        return detail::operation_state<A, Receiver>(*on_, std::move(what_), std::move(receiver));
    }
    /// For `stdexec::get_env`.
    [[nodiscard]] detail::sender_attributes get_env() const noexcept { return {on_}; }

private:
    scheduler* on_;
    A what_;
};

/// An operation or a task of the toolkit as a sender of `std::execution`, to be connected once. It may be started on any thread; it
/// begins, runs and completes on that of `on`, which runs until then: `set_value(T)`, or `set_value()` where it has no value;
/// `set_error(std::exception_ptr)`, with the exception that `co_await` would throw; `set_stopped()` for `errc::canceled`.
///
/// The stop token of the receiver's environment asks it to stop, from any thread: it ends as docs/cancellation.md has it. An
/// operation on a temporary does not compile. Each allocates one coroutine's frame, from the pool of the scheduler's thread.
///
/// An operation is made on its scheduler's thread, like the endpoint's other operations: within `let_value` behind `schedule`, or in a
/// task, which may be made anywhere and does the rest there.
///
///     auto asked = stdexec::sync_wait(rc::as_sender(on, ask(question)));     // on another thread than `on`'s
template <class A>
    requires(awaitable<A> && !std::is_lvalue_reference_v<A> && std::move_constructible<A> &&
             !std::is_reference_v<await_result_t<A>>)
operation_sender<A> as_sender(scheduler& on, A&& what) {
    detail::must_outlive_statement<A>();
    return operation_sender<A>(on, std::move(what));
}

}  // namespace rdmacoro
