// node_call_operation: a call to a node that has not begun, and `timeout` for it.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/call_error.hpp>
#include <rdmacoro/service/call_timeout.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

namespace rdmacoro {

namespace detail {

/// A call to a node that is about to begin: `Call`, over the connection with that life of the node, or `run`, with the zero of generations, which
/// makes the connection and names the node in its errors.
template <class R, class Call>
struct node_call {
    node_id to;
    generation born;
    std::optional<Call> call;
    task<R> run;
};

/// Throws the error again, with the node in its text.
[[noreturn]] RDMACORO_DECL void throw_of_node(node_id to, generation born, const error& failed);

}  // namespace detail

/// The operation of `node_calls::call`, `call_into`, `cast` and `open`. Described at `node_calls::call`. `Make` is given the time until which the
/// call may take, by the scheduler's clock; its zero: no limit.
template <class R, class Make>
class [[nodiscard]] node_call_operation {
public:
    using value_type = R;

    explicit node_call_operation(Make&& make) : make_(std::move(make)) {}
    node_call_operation(node_call_operation&& other) noexcept(std::is_nothrow_move_constructible_v<Make>)
        : make_(std::move(other.make_)), limit_(other.limit_) {}  // only before it is awaited

    /// For `timeout`: the peer is told that the call has so much time.
    void set_limit(duration limit) noexcept { limit_ = limit; }

    void bind(const environment& env) noexcept { env_ = env; }

    /// Makes the call; only once.
    bool await_ready() {
        call_.emplace(make_(limit_ ? detail::deadline_after(env_.owner->now(), *limit_) : time_point()));
        if (call_->call) [[likely]] {
            call_->call->bind(env_);
            return call_->call->await_ready();
        }
        call_->run.bind(env_);
        return false;
    }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
        if (call_->call) [[likely]]
            return call_->call->await_suspend(awaiting);
        return typename task<R>::awaiter(call_->run.handle()).await_suspend(awaiting);
    }
    R await_resume() {
        if (!call_->call) [[unlikely]]
            return typename task<R>::awaiter(call_->run.handle()).await_resume();
        try {
            return call_->call->await_resume();
        } catch (const error& failed) {
            detail::throw_of_node(call_->to, call_->born, failed);
        }
    }

private:
    Make make_;
    std::optional<duration> limit_{};
    environment env_{};
    std::optional<std::invoke_result_t<Make&, time_point>> call_{};
};

/// As `timeout` for any operation, and the peer is told the limit, less what connecting takes.
///
/// Awaitable.
/// Completes: when the call does, which is canceled when `limit` has passed since it began.
/// Buffers: as for the call.
/// Concurrency: as for the call.
/// Errors: `errc::timed_out`; else those of the call.
/// Cancellation: passed on to the call.
/// Example:
///     auto value = co_await timeout(peers.call(9, kv::get, key), 2ms);
template <class R, class Make>
[[nodiscard]] auto timeout(node_call_operation<R, Make>&& op, duration limit) {
    op.set_limit(limit);
    return call_timeout<node_call_operation<R, Make>>(std::move(op), limit);
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/node_call_operation.ipp>
#endif
