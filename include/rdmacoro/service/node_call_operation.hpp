// node_call_operation: a call to a node that has not begun, and `timeout` for it.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace rdmacoro {

namespace detail {

/// A call to a node that is about to begin: over the connection with that life of the node, or, with the zero of generations, by a coroutine that
/// makes the connection and names the node in its errors.
template <class R>
struct node_call {
    node_id to;
    generation born;
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

    /// Awaits the call.
    class awaiter {
    public:
        explicit awaiter(detail::node_call<R>& of) : of_(of), inner_(std::move(of.run).operator co_await()) {}
        [[nodiscard]] bool await_ready() { return inner_.await_ready(); }
        auto await_suspend(std::coroutine_handle<> awaiting) { return inner_.await_suspend(awaiting); }
        R await_resume() {
            try {
                return inner_.await_resume();
            } catch (const error& failed) {
                if (of_.born == generation() || failed.code() == errc::canceled) throw;
                detail::throw_of_node(of_.to, of_.born, failed);
            }
        }

    private:
        detail::node_call<R>& of_;
        typename task<R>::awaiter inner_;
    };
    /// Makes the call; only once.
    awaiter operator co_await() && {
        call_ = make_(limit_ ? detail::deadline_after(env_.owner->now(), *limit_) : time_point());
        call_.run.bind(env_);
        return awaiter(call_);
    }

private:
    Make make_;
    std::optional<duration> limit_{};
    environment env_{};
    detail::node_call<R> call_{};
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
    return timeout_operation<node_call_operation<R, Make>>(std::move(op), limit);
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/node_call_operation.ipp>
#endif
