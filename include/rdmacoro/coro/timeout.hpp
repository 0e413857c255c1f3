// timeout(op, duration): ends an operation that takes too long.
#pragma once

#include <rdmacoro/coro/detail/adapted.hpp>
#include <rdmacoro/coro/timer.hpp>

namespace rdmacoro {

/// What `timeout` gives. Described at `timeout`.
template <class A>
class timeout_operation {
    using inner_type = detail::adapted<A>;

public:
    using value_type = typename inner_type::value_type;

    timeout_operation(A&& inner, duration limit) : inner_(static_cast<A&&>(inner)), limit_(limit) {}

    /// Only before it is awaited.
    timeout_operation(timeout_operation&& other) : inner_(std::move(other.inner_)), limit_(other.limit_) {}
    ~timeout_operation() { finish(); }

    void bind(const environment& env) noexcept {
        owner_ = env.owner;
        source_.follow(env.stop);
        inner_.bind({env.owner, source_.get_token()});
    }

    bool await_ready() { return inner_.await_ready(); }

    auto await_suspend(std::coroutine_handle<> awaiting) {
        // Only what does not end at once pays for the clock and the timer.
        if (owner_ == nullptr) owner_ = &detail::running_scheduler();
        timer_.self = this;
        timer_.deadline = detail::deadline_after(owner_->now(), limit_);
        timer_.expired = [](detail::timer_node& timer) noexcept {
            timeout_operation& self = *static_cast<timer_hook&>(timer).self;
            if (self.source_.stop_requested()) return;
            self.timed_out_ = true;
            self.source_.request_stop();
        };
        owner_->add_timer(timer_);
        return inner_.await_suspend(awaiting);
    }

    value_type await_resume() {
        finish();
        if (!timed_out_) [[likely]]
            return inner_.await_resume();
        try {
            return inner_.await_resume();
        } catch (const std::system_error& ended) {
            if (ended.code() == errc::canceled) detail::throw_error(errc::timed_out);
            throw;
        }
    }

    /// What `await_resume` gives, without throwing.
    auto take_result()
        requires detail::gives_result<inner_type>
    {
        finish();
        auto ended = inner_.take_result();
        if (timed_out_ && ended.error() == errc::canceled) return decltype(ended)(errc::timed_out);
        return ended;
    }

private:
    struct timer_hook : detail::timer_node {
        timeout_operation* self = nullptr;
    };

    void finish() noexcept {
        if (timer_.queued()) owner_->remove_timer(timer_);
    }

    // The source outlives what the inner operation attaches to it.
    local_stop_source source_;
    inner_type inner_;
    duration limit_;
    scheduler* owner_ = nullptr;
    timer_hook timer_;
    bool timed_out_ = false;
};

/// Awaitable.
/// Completes: when `op` does, at the latest once it is canceled after `limit`, which counts from when `op` was first tried.
/// Buffers: as `op` says: it is waited for until it has let go of them, also after the limit.
/// Concurrency: as `op` says. An lvalue is borrowed until then, an rvalue moves in.
/// Errors: `errc::timed_out` when `op` ended canceled because of the limit; else those of `op`. If it ended with a value
/// at the same moment, the value wins. An `op` that is ready at once ends with its value, even if the limit is zero.
/// Cancellation: passed on to `op`, which then ends as canceled as ever.
/// Example:
///     auto got = co_await timeout(peer.recv(buffer), 1s);
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] timeout_operation<A> timeout(A&& op, duration limit) {
    return timeout_operation<A>(static_cast<A&&>(op), limit);
}

}  // namespace rdmacoro
