// without_stop(op): an operation that a stop request around it does not reach, or only after a time.
#pragma once

#include <rdmacoro/coro/detail/adaptor.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timer.hpp>

#include <utility>

namespace rdmacoro {

namespace detail {

/// Keeps stop requests from an operation.
class no_stop {
public:
    no_stop() noexcept = default;
    no_stop(no_stop&&) noexcept {}  // only before it is bound
    ~no_stop() { after_end(); }

    /// The operation stays a part of what awaits it: a destructor that waits for its coroutines resumes it.
    [[nodiscard]] environment bind(const environment& env) noexcept {
        source_.belong_to(env.stop);
        owner_ = env.owner;
        return {env.owner, source_.get_token()};
    }
    static void before_begin() noexcept {}
    /// Such a destructor lets other coroutines go on meanwhile.
    void before_wait() noexcept {
        if (owner_ == nullptr) return;
        waits_ = true;
        owner_->unstopped_wait_began();
    }
    void after_end() noexcept {
        if (std::exchange(waits_, false)) owner_->unstopped_wait_ended();
    }

private:
    local_stop_source source_;  // never asked to stop
    scheduler* owner_ = nullptr;
    bool waits_ = false;
};

/// Passes a stop request on after a time.
class late_stop {
public:
    explicit late_stop(duration grace) noexcept : grace_(grace) {}
    late_stop(late_stop&& other) noexcept : grace_(other.grace_) {}  // only before it is bound
    ~late_stop() { after_end(); }

    [[nodiscard]] environment bind(const environment& env) noexcept;
    static void before_begin() noexcept {}
    void before_wait() noexcept;
    void after_end() noexcept;

private:
    struct stop_hook : local_stop_callback {
        late_stop* self = nullptr;
    };
    struct timer_hook : timer_node {
        late_stop* self = nullptr;
    };

    void set_timer() noexcept;

    duration grace_;
    scheduler* owner_ = nullptr;
    bool waits_ = false;
    local_stop_token around_;
    local_stop_source source_;  // the operation runs with its token
    stop_hook stopped_;
    timer_hook timer_;
};

}  // namespace detail

/// The operation of `without_stop`. Described at `without_stop`.
template <class A, class Hooks>
class without_stop_operation : public detail::adaptor<A, Hooks> {
public:
    template <class... Grace>
    explicit without_stop_operation(A&& inner, Grace... grace)
        : detail::adaptor<A, Hooks>(static_cast<A&&>(inner), grace...) {}
};

/// Awaitable. For what must be finished when all else is asked to stop: the answer to a request, a `close`.
/// Completes: when `op` does.
/// Buffers: as for `op`.
/// Concurrency: as for `op`. An lvalue is borrowed until then, an rvalue moves in.
/// Errors: those of `op`.
/// Cancellation: a stop request from around it, also one that came before, does not reach `op`. A limit or a token of its own goes
/// inside: `without_stop(timeout(op, 5s))`; a `timeout` around it has no effect.
/// Example:
///     co_await without_stop(peer.send(answer));
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] without_stop_operation<A, detail::no_stop> without_stop(A&& op) {
    return without_stop_operation<A, detail::no_stop>(static_cast<A&&>(op));
}

/// As above, for at most `grace` after the stop request. Where several operations share one grace period, they are one task.
///
/// Awaitable.
/// Completes: when `op` does.
/// Buffers: as for `op`, which is awaited to its end also after the grace period.
/// Concurrency: as for `op`. An lvalue is borrowed until then, an rvalue moves in.
/// Errors: those of `op`.
/// Cancellation: `op` is canceled when `grace` has passed since the stop was requested from around it, or since `op` began if it was
/// requested before. Without a stop request `op` has as long as it takes.
/// Example:
///     co_await without_stop(peer.close(), 2s);
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] without_stop_operation<A, detail::late_stop> without_stop(A&& op, duration grace) {
    return without_stop_operation<A, detail::late_stop>(static_cast<A&&>(op), grace);
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/without_stop.ipp>
#endif
