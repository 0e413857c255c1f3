// window<A>: up to so many operations at a time, without a task for each.
#pragma once

#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/with_stop.hpp>

#include <cstddef>
#include <memory>

namespace rdmacoro {

/// A row of started operations of one type, at most `capacity` at a time, awaited in the order in which they were started. It
/// allocates once, when it is made; tasks may be in it, too, with a frame from the pool for each.
///
///     rc::window<decltype(peer.send(parts[0]))> sends(32);
///     for (const auto& part : parts) co_await sends.add(peer.send(part));  // 32 are under way
///     co_await sends.all();
///
/// With values, which come in that order:
///
///     rc::window<decltype(peer.recv(buffers[0]))> receives(buffers.size());
///     for (auto& buffer : buffers) receives.start(peer.recv(buffer));
///     for (std::size_t n = 0; n < messages; ++n) {
///         use(co_await receives.next(), buffers[n % buffers.size()]);
///         receives.start(peer.recv(buffers[n % buffers.size()]));
///     }
///     co_await receives.cancel();
///
/// Destroying it with operations that were not awaited is as for `start`: the process ends with a message, unless an exception unwinds
/// the scope; then they are canceled and waited for. For one coroutine at a time.
template <detail::movable_awaitable A>
class window {
    static_assert(!detail::borrows_temporary<A>,
                  "window: an operation that was made from a temporary does not outlive its statement");

public:
    using value_type = await_result_t<A>;

    /// At most `capacity` operations. Throws `errc::invalid_argument` for none.
    explicit window(std::size_t capacity) : capacity_(capacity) {
        if (capacity == 0) detail::throw_error(errc::invalid_argument, "window: of no operation");
        slots_ = std::allocator<slot>().allocate(capacity);
    }
    window(const window&) = delete;
    window& operator=(const window&) = delete;
    ~window() {
        while (size_ != 0) pop();
        std::allocator<slot>().deallocate(slots_, capacity_);
    }

    /// How many were started and not awaited.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// How many there may be.
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    /// Whether there is nothing to await.
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    /// Whether one must be awaited before another one starts.
    [[nodiscard]] bool full() const noexcept { return size_ == capacity_; }

    /// Begins `op` now. Throws `errc::invalid_argument` when the window is full, and as `rdmacoro::start`.
    void start(A&& op) {
        if (full())
            detail::throw_error(errc::invalid_argument, "window: full; await next() first, or use add");
        begin(static_cast<A&&>(op));
    }
    /// Refused by the compiler: what was made from a temporary.
    template <class Marked>
        requires detail::borrows_temporary<Marked>
    void start(Marked&&) {
        detail::must_outlive_statement<Marked>();
    }

    /// The operation of `next`. Described at `next`.
    class [[nodiscard]] next_operation {
    public:
        using value_type = window::value_type;

        explicit next_operation(window& of) noexcept : of_(&of) {}

        void bind(const environment& env) noexcept { of_->oldest().bind(env); }
        bool await_ready() noexcept { return of_->oldest().await_ready(); }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept {
            of_->oldest().await_suspend(awaiting);
        }
        [[nodiscard]] bool ended_at_once() const noexcept { return of_->oldest().ended_at_once(); }
        value_type await_resume() { return of_->take(); }

    private:
        window* of_;
    };

    /// Awaitable.
    /// Ends with the value of the oldest operation, which leaves the window.
    /// Completes: when that has ended; at once when it has ended in the meantime.
    /// Buffers: that operation's are free then.
    /// Concurrency: one `next`, `add`, `all` or `cancel` at a time.
    /// Errors: those of the operation; the others go on. The call itself throws `errc::invalid_argument` when the window is empty.
    /// Cancellation: passed on to the oldest operation, from now on.
    /// Example:
    ///     auto got = co_await receives.next();
    [[nodiscard]] next_operation next() {
        if (empty()) detail::throw_error(errc::invalid_argument, "window: nothing to await");
        return next_operation(*this);
    }

    /// The operation of `add`. Described at `add`.
    class [[nodiscard]] add_operation : private detail::ready_node {
    public:
        using value_type = void;

        add_operation(window& to, A&& op) : to_(&to), op_(static_cast<A&&>(op)) {}

        void bind(const environment& env) noexcept { env_ = env; }
        bool await_ready() noexcept {
            stopped_ = env_.stop.stop_requested();
            if (stopped_) return env_.owner == nullptr || env_.owner->may_go_on();
            waits_ = to_->full();
            if (!waits_) return true;
            to_->oldest().bind(env_);
            return to_->oldest().await_ready();
        }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept {
            if (!stopped_) return to_->oldest().await_suspend(awaiting);
            waiter = awaiting;
            stop = env_.stop;
            env_.owner->make_ready(*this);
        }
        [[nodiscard]] bool ended_at_once() const noexcept {
            return stopped_ || to_->oldest().ended_at_once();
        }
        void await_resume() {
            if (stopped_) detail::throw_error(errc::canceled);
            if (waits_) to_->take();
            to_->begin(static_cast<A&&>(op_));
        }

    private:
        window* to_;
        A op_;
        environment env_{};
        bool stopped_ = false;
        bool waits_ = false;
    };

    /// Awaitable. For operations without a value; with values, use `next` and `start`.
    /// Completes: when `op` has begun: at once while there is room, else when the oldest operation has ended.
    /// Buffers: those of `op` are borrowed until it has been awaited to its end, by a later `add` or by `all`.
    /// Concurrency: one `next`, `add`, `all` or `cancel` at a time.
    /// Errors: those of the oldest operation, if it was waited for; `op` then does not begin.
    /// Cancellation: passed on to the oldest operation that is waited for; `op` does not begin.
    /// Example:
    ///     co_await sends.add(peer.send(part));
    [[nodiscard]] add_operation add(A&& op)
        requires std::is_void_v<value_type>
    {
        return add_operation(*this, static_cast<A&&>(op));
    }
    /// Refused by the compiler: what was made from a temporary.
    template <class Marked>
        requires detail::borrows_temporary<Marked>
    add_operation add(Marked&&) {
        detail::must_outlive_statement<Marked>();
    }

    /// Awaitable.
    /// Completes: when all operations have ended; the window is empty then, also after an error.
    /// Buffers: none is borrowed any more then.
    /// Concurrency: one `next`, `add`, `all` or `cancel` at a time.
    /// Errors: the first error, in the order of the window; the others are then canceled and waited for.
    /// Cancellation: passed on to all.
    /// Example:
    ///     co_await sends.all();
    [[nodiscard]] task<> all()
        requires std::is_void_v<value_type>
    {
        std::exception_ptr failure;
        local_stop_source stopped;
        if (empty()) co_await detail::turn_for_others();
        while (!empty()) {
            try {
                co_await with_stop(next(), stopped.get_token());
            } catch (...) {
                if (!failure) failure = std::current_exception();
                stopped.request_stop();
            }
        }
        if (failure) std::rethrow_exception(failure);
    }

    /// Awaitable.
    /// Completes: when all operations have been canceled and have ended; their values and errors are dropped, and the window is empty.
    /// Buffers: none is borrowed any more then.
    /// Concurrency: one `next`, `add`, `all` or `cancel` at a time.
    /// Errors: none.
    /// Cancellation: none: all are being canceled.
    /// Example:
    ///     co_await receives.cancel();
    [[nodiscard]] task<> cancel() {
        local_stop_source stopped;
        stopped.request_stop();
        if (empty()) co_await detail::turn_for_others();
        while (!empty()) {
            try {
                static_cast<void>(co_await with_stop(next(), stopped.get_token()));
            } catch (...) {  // canceled, or what it ended with before
            }
        }
    }

private:
    using slot = started<A>;

    [[nodiscard]] slot& oldest() noexcept { return slots_[oldest_]; }

    void begin(A&& op) {
        std::size_t at = oldest_ + size_;
        if (at >= capacity_) at -= capacity_;
        std::construct_at(slots_ + at, static_cast<A&&>(op));
        ++size_;
    }
    void pop() noexcept {
        slot& ended = oldest();
        if (++oldest_ == capacity_) oldest_ = 0;
        --size_;
        std::destroy_at(&ended);
    }
    value_type take() {
        const struct popper {
            window& of;
            ~popper() { of.pop(); }
        } after{*this};
        return oldest().await_resume();
    }

    slot* slots_ = nullptr;
    std::size_t capacity_;
    std::size_t oldest_ = 0;
    std::size_t size_ = 0;
};

}  // namespace rdmacoro
