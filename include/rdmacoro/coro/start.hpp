// start(op): begins an operation now; co_await finishes it later.
#pragma once

#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/detail/child.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <exception>

namespace rdmacoro {

namespace detail {

/// An operation that can begin without being awaited.
template <class A>
concept hot_startable = std::derived_from<A, operation_base> && requires(A& op) {
    op.begin();
    op.take_result();
};

template <class A>
concept movable_awaitable = awaitable<A> && !std::is_lvalue_reference_v<A> && std::move_constructible<A>;

/// Ends an operation that has begun and that nothing will await: cancels it, and runs the scheduler until it has ended.
template <hot_startable Op>
void end_unawaited(Op& op) noexcept {
    if (op.done()) return;
    local_stop_source stopped;
    stopped.request_stop();
    op.bind({nullptr, stopped.get_token()});
    if (!op.await_ready()) op.owner().run_until([&op] { return op.done(); }, stopped);
}

/// Called when a started operation is destroyed without having been awaited.
RDMACORO_DECL void check_abandoned() noexcept;

/// The operation knows no scheduler, and none runs on this thread.
[[noreturn]] RDMACORO_DECL void throw_outside();

/// The outcome of a started helper coroutine. Its `waiter` is the coroutine that awaits it.
template <class T>
class started_slot final : public child_owner, public ready_node {
public:
    started_slot() noexcept { waiter = std::noop_coroutine(); }

    template <class U>
    void set(U&& value) {
        ended_with.set(static_cast<U&&>(value));
    }
    void child_failed(std::exception_ptr failure) noexcept override { ended_with.fail(std::move(failure)); }
    std::coroutine_handle<> child_ended() noexcept override {
        done = true;
        return waiter;
    }

    outcome<T> ended_with;
    bool done = false;
};

}  // namespace detail

/// An operation that has begun. Described at `start`.
template <class A>
class [[nodiscard]] started;

/// For operations. Described at `start`.
template <detail::hot_startable Op>
class [[nodiscard]] started<Op> {
public:
    using value_type = typename Op::value_type;

    explicit started(Op&& op) : op_(std::move(op)) {
        op_.bind({scheduler::current(), {}});
        if (!op_.has_owner()) detail::throw_outside();
        op_.begin();
    }
    started(const started&) = delete;
    started& operator=(const started&) = delete;

    /// Not awaited: fatal, unless an exception unwinds the frame. Then the operation is canceled, and the scheduler runs
    /// until it has ended.
    ~started() {
        if (awaited_) return;
        detail::check_abandoned();
        detail::end_unawaited(op_);
    }

    /// Whether it has ended; then awaiting it does not suspend.
    [[nodiscard]] bool done() const noexcept { return op_.done(); }

    void bind(const environment& env) noexcept { op_.bind(env); }
    bool await_ready() noexcept { return op_.await_ready(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { op_.await_suspend(awaiting); }
    /// After `await_ready` returned false: whether it has ended all the same, and only lets others have their turn.
    [[nodiscard]] bool ended_at_once() const noexcept { return op_.ended_at_once(); }
    value_type await_resume() {
        awaited_ = true;
        return op_.await_resume();
    }
    [[nodiscard]] result<value_type> take_result() noexcept {
        awaited_ = true;
        return op_.take_result();
    }

private:
    Op op_;
    bool awaited_ = false;
};

/// Any other awaitable, such as a task, begins in a helper coroutine's frame (from the pool). Described at `start`.
template <class A>
    requires(!detail::hot_startable<A>)
class [[nodiscard]] started<A> {
public:
    using value_type = await_result_t<A>;

    explicit started(A&& what) : what_(std::move(what)), owner_(&detail::running_scheduler()) {
        detail::run_into<A>(slot_, what_).begin_now({owner_, source_.get_token()});
    }

    started(const started&) = delete;
    started& operator=(const started&) = delete;

    /// As for operations: not awaited is fatal, unless an exception unwinds the frame.
    ~started() {
        if (awaited_) return;
        detail::check_abandoned();
        source_.request_stop();
        owner_->run_until([this] { return slot_.done; }, source_);
    }

    /// Whether it has ended; the result stays stored for `co_await`.
    [[nodiscard]] bool done() const noexcept { return slot_.done; }

    void bind(const environment& env) noexcept {
        if (env.owner != owner_ && env.owner != nullptr) [[unlikely]]
            detail::awaited_elsewhere(*owner_, *env.owner);
        source_.follow(env.stop);
    }
    bool await_ready() noexcept { return slot_.done && owner_->may_go_on(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept {
        slot_.waiter = awaiting;
        if (!slot_.done) return;
        slot_.stop = source_.get_token();  // a part of the awaiting coroutine's
        owner_->make_ready(slot_);
    }
    /// After `await_ready` returned false: whether it has ended all the same, and only lets others have their turn.
    [[nodiscard]] bool ended_at_once() const noexcept { return slot_.done; }
    value_type await_resume() {
        awaited_ = true;
        source_.unfollow();  // the awaiting task may end before this is destroyed
        return slot_.ended_with.take();
    }

private:
    local_stop_source source_;
    A what_;
    scheduler* owner_;
    detail::started_slot<value_type> slot_;
    bool awaited_ = false;
};

/// Begins an operation or a task now; `co_await` on the returned object finishes it. This overlaps communication with
/// computation. The object does not move (`auto pending = start(...)`) and must be awaited: destroying it before that ends
/// the process with a message. Only when an exception unwinds its scope is the operation canceled instead, and waited for; what it has ended with,
/// such as a channel's value, is dropped.
///
/// Awaitable.
/// Completes: as `op` does; at once when it has ended in the meantime.
/// Buffers: borrowed from the call of `start` until it has been awaited to its end. An operation on a temporary, such as
/// `peer.send(std::vector<std::byte>(n))`, does not compile.
/// Concurrency: any number may be started at a time, as far as `op` allows; each is awaited once.
/// Errors: those of `op`, when awaited. `start` itself throws `errc::invalid_argument` outside a running scheduler, unless
/// `op` knows its scheduler.
/// Cancellation: the token of the awaiting task counts from when it awaits.
/// Example:
///     auto pending = start(peer.recv(buffer));
///     compute();
///     auto got = co_await pending;
template <detail::movable_awaitable A>
[[nodiscard]] started<A> start(A&& op) {
    detail::must_outlive_statement<A>();
    return started<A>(std::move(op));
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/start.ipp>
#endif
