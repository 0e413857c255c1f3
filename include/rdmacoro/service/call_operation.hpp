// call_operation: a call that has not begun, and `timeout` for it.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace rdmacoro {

/// The operation of `calls::call`, `call_into`, `cast` and `open`. Described at `calls::call`. `Make` is given the time until which the call may
/// take, by the scheduler's clock; its zero: no limit.
template <class R, class Make>
class [[nodiscard]] call_operation {
public:
    using value_type = R;

    explicit call_operation(Make&& make) : make_(std::move(make)) {}
    call_operation(call_operation&& other) noexcept(std::is_nothrow_move_constructible_v<Make>)
        : make_(std::move(other.make_)), limit_(other.limit_) {}  // only before it is awaited

    /// For `timeout`: the peer is told that the call has so much time.
    void set_limit(duration limit) noexcept { limit_ = limit; }

    void bind(const environment& env) noexcept { env_ = env; }
    /// Makes the call; only once.
    auto operator co_await() && {
        run_ = make_(limit_ ? detail::deadline_after(env_.owner->now(), *limit_) : time_point());
        run_.bind(env_);
        return std::move(run_).operator co_await();
    }

private:
    Make make_;
    std::optional<duration> limit_{};
    environment env_{};
    task<R> run_;
};

/// As `timeout` for any operation, and the peer is told the limit: a call that has no time left is not begun there, and its handler is
/// asked to stop when it is.
///
/// Awaitable.
/// Completes: when the call does, which is canceled when `limit` has passed since it began.
/// Buffers: as for the call.
/// Concurrency: as for the call.
/// Errors: `errc::timed_out`; else those of the call.
/// Cancellation: passed on to the call.
/// Example:
///     auto value = co_await timeout(peer.call(kv::get, key), 2ms);
template <class R, class Make>
[[nodiscard]] auto timeout(call_operation<R, Make>&& op, duration limit) {
    op.set_limit(limit);
    return timeout_operation<call_operation<R, Make>>(std::move(op), limit);
}

}  // namespace rdmacoro
