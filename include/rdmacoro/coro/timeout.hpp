// timeout(op, duration): ends an operation that takes too long.
#pragma once

#include <rdmacoro/coro/detail/adaptor.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timer.hpp>

namespace rdmacoro {

namespace detail {

/// The time limit of an operation: stops it when the limit expires.
class time_limit : public stopping_hooks {
public:
    explicit time_limit(duration limit) noexcept : limit_(limit) {}
    time_limit(time_limit&& other) noexcept : limit_(other.limit_) {}  // only before it is awaited
    ~time_limit() { after_end(); }

    static void before_begin() noexcept {}
    /// Only an operation that does not end at once pays for the clock and the timer.
    void before_wait() noexcept;
    void after_end() noexcept;

    /// Whether the limit canceled the operation.
    [[nodiscard]] bool is_over() const noexcept { return is_over_; }
    /// Called in a handler of `ended`: throws it again, or `errc::timed_out` if the limit canceled the operation.
    [[noreturn]] void rethrow(const std::system_error& ended) const;

private:
    struct timer_hook : timer_node {
        time_limit* self = nullptr;
    };

    duration limit_;
    timer_hook timer_;
    bool is_over_ = false;
};

}  // namespace detail

/// The operation of `timeout`. Described at `timeout`.
template <class A>
class timeout_operation : public detail::adaptor<A, detail::time_limit> {
    using base = detail::adaptor<A, detail::time_limit>;
    using base::hooks_;

public:
    using typename base::value_type;

    timeout_operation(A&& inner, duration limit) : base(static_cast<A&&>(inner), limit) {}

    value_type await_resume() {
        try {
            return base::await_resume();
        } catch (const std::system_error& ended) {
            hooks_.rethrow(ended);
        }
    }

    auto take_result()
        requires detail::gives_result<detail::adapted<A>>
    {
        auto ended = base::take_result();
        if (hooks_.is_over() && ended.error() == errc::canceled)
            return decltype(ended)(errc::timed_out, ended.facts());
        return ended;
    }
};

/// Awaitable.
/// Completes: when `op` does, which is canceled when `limit` has passed since it began.
/// Buffers: as for `op`, which is awaited to its end also after the limit.
/// Concurrency: as for `op`. An lvalue is borrowed until then, an rvalue moves in.
/// Errors: `errc::timed_out` when `op` ended canceled because of the limit; else those of `op`. If it ends with a value at the same moment,
/// the value is returned. An `op` that is ready at once ends with its value, even if the limit is zero.
/// Cancellation: passed on to `op`.
/// Example:
///     auto got = co_await timeout(peer.recv(buffer), 1s);
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] timeout_operation<A> timeout(A&& op, duration limit) {
    return timeout_operation<A>(static_cast<A&&>(op), limit);
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/timeout.ipp>
#endif
