// asio: a scheduler as a guest of an asio::io_context. Needs standalone Asio, 1.22 or newer, with C++20 coroutines.
//
// Belongs here: what runs the toolkit within other libraries' loops, a header for each library.
// Does not belong here: anything that a program without that library needs; how a scheduler waits (coro/).
#pragma once

#include <rdmacoro/coro/awaitable.hpp>
#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/idle.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/root_task.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

// Asio 1.22 looks for clang's coroutines where they were before C++20.
#if defined(__clang__) && defined(__cpp_impl_coroutine) && !defined(ASIO_DETAIL_CONFIG_HPP)
#if !defined(ASIO_HAS_CO_AWAIT)
#define ASIO_HAS_CO_AWAIT 1
#endif
#if !defined(ASIO_HAS_STD_COROUTINE)
#define ASIO_HAS_STD_COROUTINE 1
#endif
#endif
#include <asio/detail/config.hpp>
#if !defined(ASIO_HAS_CO_AWAIT)
#error                                                                                                       \
    "with clang define ASIO_HAS_CO_AWAIT and ASIO_HAS_STD_COROUTINE as 1 for the whole program, before Asio's headers"
#endif

#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/detail/thread_context.hpp>
#include <asio/detail/thread_info_base.hpp>
#include <asio/dispatch.hpp>
#include <asio/execution/outstanding_work.hpp>
#include <asio/execution_context.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/prefer.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/version.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

static_assert(ASIO_VERSION >= 102200, "rdmacoro/adapters/asio.hpp needs Asio 1.22 or newer");

namespace rdmacoro {

namespace detail {

/// An operation that an Asio handler waits for. Owned by the service.
class asio_pending : public list_node<asio_pending> {
public:
    asio_pending() noexcept = default;
    virtual ~asio_pending() = default;
    /// Ends its life and calls the handler. The operation has ended.
    virtual void deliver() = 0;

    std::optional<root_task<>> running;
    std::shared_ptr<asio_pending*>
        slot_target;  // what the handler's cancellation slot refers to; nullptr: it has none
};

class asio_service;
template <class T>
struct asio_turn_allocator;

/// The handler that takes a turn. The context has one at most, and its memory is the service's: there is always some, also where an exception
/// ended the turn before.
struct asio_turn {
    using allocator_type = asio_turn_allocator<void>;
    [[nodiscard]] inline allocator_type get_allocator() const noexcept;
    inline void operator()() const;
    asio_service* in;
};

/// The guest: a scheduler that lives as long as its io_context.
class asio_service final : public asio::execution_context::service {
public:
    using key_type = asio_service;
    static inline asio::execution_context::id id;

    explicit asio_service(asio::execution_context& in) : asio_service(in, idle::adaptive()) {}
    template <idle::strategy Idle>
    asio_service(asio::execution_context& in, Idle strategy)
        : service(in),
          host_(static_cast<asio::io_context&>(in)),
          idle_(new idle_model<Idle>(strategy)),
          on_(std::make_unique<scheduler>(std::move(strategy))),
          readable_(std::in_place, host_, on_->descriptor()),
          timer_(std::in_place, host_) {
        // In a turn of its own nothing is to do: the turn prepares to wait again.
        on_->on_wait_ended([](void* self) noexcept { static_cast<asio_service*>(self)->turn_soon(); }, this);
    }
    ~asio_service() override {
        closed_ = true;
        if (readable_)
            readable_->release();  // the context took another service, and this one was never shut down
    }

    [[nodiscard]] scheduler& on() noexcept { return *on_; }
    [[nodiscard]] asio::io_context& host() noexcept { return host_; }

    /// An operation has begun, in a turn that `turn_soon` has arranged before; the service owns it.
    void adopt(std::unique_ptr<asio_pending> begun) noexcept {
        pending_.push_back(*begun.release());
        ++wanted_;
    }
    /// It has ended, in a turn of the scheduler.
    void ended(asio_pending& which) noexcept {
        which.unlink();
        ended_.push_back(which);
    }
    /// The handler of its cancellation slot.
    void stop(asio_pending& which) {
        which.running->request_stop();
        turn_soon();
    }
    void keep() noexcept {
        turn_soon();
        ++wanted_;
    }
    void let_go() noexcept {
        if (--wanted_ == 0) turn_soon();  // which then ends what the context waits for
    }
    /// There will be a turn.
    void turn_soon() noexcept {
        if (posted_ || turning_ || closed_) return;
        posted_ = true;
        asio::post(host_, asio_turn{this});
    }

private:
    friend asio_turn;
    template <class T>
    friend struct asio_turn_allocator;

    struct idle_base {
        virtual ~idle_base() = default;
        virtual idle::action next(clock& time) noexcept = 0;
        virtual void progress() noexcept = 0;
    };
    template <class Idle>
    struct idle_model final : idle_base {
        explicit idle_model(const Idle& from) : held(from) {}
        idle::action next(clock& time) noexcept override { return held.next(time); }
        void progress() noexcept override { held.progress(); }
        Idle held;
    };

    /// So many polls without progress, or so much time with it, and other handlers of the context have their turn.
    static constexpr int most_idle_polls = 256;
    static constexpr duration most_busy = std::chrono::microseconds(100);
    /// After some time without progress the context has nothing ready for a moment, so that its `poll` ends.
    /// The moments get longer, and rarer, until there is progress: on a slow machine a short one may be over before the context looks.
    static constexpr duration least_moment = std::chrono::microseconds(10);
    static constexpr duration longest_moment = std::chrono::microseconds(320);
    static constexpr int polled_moments = 20;
    static constexpr duration least_polled = std::chrono::milliseconds(1);

    /// The context is destroyed: what is pending ends, and its handlers are destroyed without being called. The coroutines that own
    /// them may own endpoints, so the scheduler stays until the services are destroyed.
    void shutdown() override {
        closed_ = true;
        while (asio_pending* const one = pending_.front()) {
            one->running.reset();  // asks it to stop, and waits; it then is among those that have ended
        }
        while (asio_pending* const one = ended_.front()) {
            one->unlink();
            delete one;
        }
        if (readable_) readable_->release();  // the scheduler's
        readable_.reset();
        timer_.reset();
    }

    /// While a turn lasts. Where a handler's exception ends it, another turn follows.
    struct turn_scope {
        explicit turn_scope(asio_service& s) noexcept : of(s), exceptions(std::uncaught_exceptions()) {
            of.turning_ = true;
        }
        turn_scope(const turn_scope&) = delete;
        turn_scope& operator=(const turn_scope&) = delete;
        ~turn_scope() {
            of.turning_ = false;
            if (std::uncaught_exceptions() > exceptions) of.turn_soon();
        }
        asio_service& of;
        int exceptions;
    };

    /// An executor keeps the exception of a handler that it calls at once until the context's handler ends. Thrown from here it ends
    /// that now: otherwise the handlers of all else that has ended would be called before.
    static void throw_kept_exception() {
        if (auto* const here = asio::detail::thread_context::top_of_thread_call_stack())
            here->rethrow_pending_exception();
    }

    /// Calls the handlers of what has ended.
    bool deliver() {
        bool any = false;
        while (asio_pending* const one = ended_.front()) {
            one->unlink();
            --wanted_;
            any = true;
            one->deliver();
            throw_kept_exception();
        }
        return any;
    }

    /// A handler of the context.
    void turn() {
        if (closed_ || turning_) return;
        idle::action then = idle::action::spin;
        {
            const turn_scope turning(*this);
            const time_point began = on_->now();
            for (int idle_polls = most_idle_polls; idle_polls > 0;) {
                const bool moved = on_->poll();
                if (deliver() || moved) {
                    if (std::exchange(idling_, false)) idle_->progress();
                    moment_ = least_moment;
                    if (on_->now() - began >= most_busy) break;
                    continue;
                }
                if (wanted_ == 0) return rest();
                if (!std::exchange(idling_, true)) polled_since_ = on_->now();
                then = idle_->next(on_->time());
                if (then == idle::action::park && wait()) return;
                if (then != idle::action::spin) break;
                --idle_polls;
            }
            const duration most_polled = std::max(least_polled, polled_moments * moment_);
            if (idling_ && on_->now() - polled_since_ >= most_polled) return turn_in_a_moment();
        }
        if (then == idle::action::yield) std::this_thread::yield();
        turn_soon();
    }

    void turn_in_a_moment() {
        polled_since_ = on_->now() + moment_;
        turn_after(moment_);
        moment_ = std::min(2 * moment_, longest_moment);
    }
    void turn_after(duration pause) {
        timer_->expires_after(pause);
        timer_->async_wait([this](const asio::error_code& why) {
            if (!why && !posted_) turn();
        });
    }

    /// Lets the context wait for the scheduler. False: there is something to do.
    bool wait() {
        duration limit = duration::zero();
        try {
            limit = on_->prepare_to_wait();
        } catch (const error&) {  // no descriptor is left: polls on
        }
        if (limit == duration::zero()) return false;
        if (!reading_) {
            readable_->async_wait(asio::posix::stream_descriptor::wait_read, [this](const asio::error_code&) {
                reading_ = false;
                if (!posted_) turn();
            });
            reading_ = true;  // where that has thrown, the next turn tries again
        }
        if (limit != duration::max()) turn_after(limit);
        return true;
    }
    /// Nothing is wanted: the context is not to wait for this guest.
    void rest() {
        timer_->cancel();
        if (reading_) readable_->cancel();
    }

    asio::io_context& host_;
    std::unique_ptr<idle_base> idle_;
    std::unique_ptr<scheduler> on_;
    std::optional<asio::posix::stream_descriptor> readable_;
    std::optional<asio::steady_timer> timer_;
    intrusive_list<asio_pending> pending_;
    intrusive_list<asio_pending> ended_;  // and not delivered yet
    std::size_t wanted_ = 0;              // operations and keepers
    bool posted_ = false;                 // a turn
    static constexpr std::size_t turn_bytes = 256;
    alignas(std::max_align_t) std::byte turn_room_[turn_bytes];  // where it is
    bool turning_ = false;
    bool idling_ = false;  // the idle strategy was asked since the last progress
    duration moment_ = least_moment;
    time_point polled_since_{};  // where it is so: since then, or since the context had a moment for others
    bool reading_ = false;       // the context waits for the descriptor
    bool closed_ = false;
};

/// Gives the service's memory for the handler of a turn.
template <class T>
struct asio_turn_allocator {
    using value_type = T;

    explicit asio_turn_allocator(asio_service* of) noexcept : in(of) {}
    template <class Other>
    asio_turn_allocator(const asio_turn_allocator<Other>& other) noexcept : in(other.in) {}

    [[nodiscard]] T* allocate(std::size_t) const noexcept {
        static_assert(sizeof(T) <= asio_service::turn_bytes && alignof(T) <= alignof(std::max_align_t));
        return reinterpret_cast<T*>(in->turn_room_);
    }
    void deallocate(T*, std::size_t) const noexcept {}
    template <class Other>
    [[nodiscard]] bool operator==(const asio_turn_allocator<Other>& other) const noexcept {
        return in == other.in;
    }

    asio_service* in;
};

inline asio_turn::allocator_type asio_turn::get_allocator() const noexcept { return allocator_type(in); }
inline void asio_turn::operator()() const {
    in->posted_ = false;
    in->turn();
}

/// The value that a handler gets for a `T`: Asio's coroutines need a value also beside an exception.
template <class T>
struct asio_value {
    using type = std::optional<T>;
};
template <std::default_initializable T>
struct asio_value<T> {
    using type = T;
};

/// The signature of a handler that gets a `T`.
template <class T>
struct asio_signature {
    using type = void(std::exception_ptr, typename asio_value<T>::type);
};
template <>
struct asio_signature<void> {
    using type = void(std::exception_ptr);
};

/// An operation of type `A` for a handler of type `Handler`.
template <class A, class Handler>
class asio_operation final : public asio_pending {
    using value_type = await_result_t<A>;
    struct nothing {};
    using held_type =
        typename asio_value<std::conditional_t<std::is_void_v<value_type>, nothing, value_type>>::type;

public:
    asio_operation(asio_service& in, Handler&& handler)
        : in_(in),
          executor_(asio::prefer(asio::get_associated_executor(handler, in.host().get_executor()),
                                 asio::execution::outstanding_work.tracked)),
          handler_(std::move(handler)) {}

    /// The coroutine that awaits the operation for the handler.
    static task<> await_for(asio_operation* self, A what) {
        try {
            if constexpr (std::is_void_v<value_type>) {
                co_await std::move(what);
            } else {
                self->value_ = co_await std::move(what);
            }
        } catch (...) {
            self->failure_ = std::current_exception();
        }
        self->in_.ended(*self);
    }

    /// Last, for the coroutine that then runs uses all that is here.
    void begin(A&& what) {
        auto slot = asio::get_associated_cancellation_slot(handler_);
        if (slot.is_connected()) {
            slot_target = std::make_shared<asio_pending*>(this);
            slot.assign([target = slot_target, in = &in_](asio::cancellation_type_t type) {
                if (*target != nullptr && type != asio::cancellation_type::none) in->stop(**target);
            });
        }
        running.emplace(in_.on(), await_for(this, std::move(what)));
    }
    ~asio_operation() override {
        if (slot_target) *slot_target = nullptr;
    }

    void deliver() override {
        auto executor = std::move(executor_);
        if (slot_target) asio::get_associated_cancellation_slot(handler_).clear();
        auto call = [handler = std::move(handler_), failure = std::move(failure_),
                     value = std::move(value_)]() mutable {
            if constexpr (std::is_void_v<value_type>) {
                static_cast<void>(value);
                std::move(handler)(failure);
            } else {
                std::move(handler)(failure, std::move(value));
            }
        };
        delete this;
        asio::dispatch(executor, std::move(call));
    }

private:
    /// Of the handler. The context behind it has work until the handler is called: its `run` does not return.
    using executor_type = std::decay_t<decltype(asio::prefer(
        std::declval<asio::associated_executor_t<Handler, asio::io_context::executor_type>>(),
        asio::execution::outstanding_work.tracked))>;

    asio_service& in_;
    executor_type executor_;
    Handler handler_;
    std::exception_ptr failure_;
    held_type value_{};
};

}  // namespace detail

/// A scheduler inside an `asio::io_context`: operations and tasks of the toolkit are awaited by Asio's coroutines, or have any other
/// completion token. There is one scheduler for a context, however many of these; it is made with the first and destroyed with the
/// context, after all coroutines that the context still had. Cheap to copy.
///
/// The context is run by one thread, which owns all that is made on the scheduler. Endpoints, listeners and domains are destroyed
/// before the context, or by a coroutine of it. The scheduler takes its turns in handlers of the context while an operation is under
/// way, or as long as a `keeper` exists; then `io_context::run` does not return. Between, its links rest: they answer no peer.
///
///     asio::awaitable<void> ask(rc::asio_guest on) {
///         auto peer = co_await on.run(rc::connect<rc::tcp>("127.0.0.1:7471"));
///         co_await on.run(peer.send(question));
///     }
class asio_guest {
public:
    /// The guest of `host`, which spins and parks as `idle::adaptive` does. Throws `errc::no_resources`.
    explicit asio_guest(asio::io_context& host) : service_(&asio::use_service<detail::asio_service>(host)) {}
    /// The same with another idle strategy. Throws `asio::service_already_exists` where the context has a guest.
    template <idle::strategy Idle>
    asio_guest(asio::io_context& host, Idle strategy)
        : service_(&asio::make_service<detail::asio_service>(host, std::move(strategy))) {}

    /// The scheduler: for domains, for `scheduler::post`, and for `scheduler::poll` after a handler of the context has made coroutines ready,
    /// by `event::set`, `channel::try_send`, `endpoint::abort` and the like.
    [[nodiscard]] scheduler& owner() const noexcept { return service_->on(); }

    /// Begins an operation or a task of the toolkit, soon, and completes `token` with `void(std::exception_ptr, T)`, or
    /// `void(std::exception_ptr)` where it has no value. Without a token: for `co_await` in an `asio::awaitable`, which then throws what the
    /// operation ended with. Other tokens get a `std::optional<T>` where `T` has no default constructor, as a listener. An operation on
    /// a temporary does not compile.
    ///
    /// A cancellation signal of any type that reaches the handler's slot asks the operation to stop: it ends as docs/cancellation.md
    /// has it, with `errc::canceled` as a rule. When the context is stopped, operations stay pending until it runs again; when it is
    /// destroyed they are canceled and waited for, and their handlers are destroyed without being called.
    template <class A, class Token = asio::use_awaitable_t<>>
        requires(awaitable<A> && !std::is_lvalue_reference_v<A> && std::move_constructible<A>)
    auto run(A&& what, Token&& token = {}) const {
        detail::must_outlive_statement<A>();
        using value_type = await_result_t<A>;
        constexpr bool boxed = !std::is_void_v<value_type> && !std::default_initializable<value_type>;
        auto initiated = [&] {
            return asio::async_initiate<Token, typename detail::asio_signature<value_type>::type>(
                [in = service_](auto handler, A begun) {
                    using operation = detail::asio_operation<A, decltype(handler)>;
                    auto made = std::make_unique<operation>(*in, std::move(handler));
                    in->turn_soon();
                    made->begin(std::move(begun));
                    in->adopt(std::move(made));
                },
                token, static_cast<A&&>(what));
        };
        if constexpr (boxed && std::same_as<std::remove_cvref_t<Token>, asio::use_awaitable_t<>>) {
            return unbox<value_type>(initiated());
        } else {
            return initiated();
        }
    }

    /// Keeps the scheduler turning while it exists, also with no operation under way: so that links answer a peer's gets and puts,
    /// and listeners greet. Not after the context.
    class keeper {
    public:
        /// Begins with its own existence.
        explicit keeper(const asio_guest& of) noexcept : service_(of.service_) { service_->keep(); }
        keeper(const keeper&) = delete;
        keeper& operator=(const keeper&) = delete;
        ~keeper() { service_->let_go(); }

    private:
        detail::asio_service* service_;
    };
    /// A `keeper`.
    [[nodiscard]] keeper keep() const { return keeper(*this); }

private:
    template <class T>
    static asio::awaitable<T> unbox(asio::awaitable<std::optional<T>> from) {
        std::optional<T> held = co_await std::move(from);
        co_return *std::move(held);
    }

    detail::asio_service* service_;
};

}  // namespace rdmacoro
