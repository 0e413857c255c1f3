// call_operation and fixed_call: calls that have not begun, and `timeout` for them.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/call_timeout.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/answer_value.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/detail/fixed_call.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro {

namespace detail {
/// Leaves a task's result as it is: it is the call's.
struct unchanged {
    template <class T>
    T operator()(T value) const {
        return value;
    }
};
}  // namespace detail

/// The operation of `calls::call`, `call_into`, `cast` and `open`, where it is not a `fixed_call`. Described at `calls::call`. `make(until)` gives
/// the task that does it, with the time until which the call may take, by the scheduler's clock, or its zero: no limit; `end` makes the result
/// of the task's.
template <class R, class Make, class End = detail::unchanged>
class [[nodiscard]] call_operation {
    using made = std::invoke_result_t<Make&, time_point>;

public:
    using value_type = R;

    /// `until`: where its limit was set before.
    explicit call_operation(Make&& make, End end = {}, time_point until = {})
        : make_(std::move(make)), end_(end), until_(until) {}
    call_operation(call_operation&& other) noexcept(std::is_nothrow_move_constructible_v<Make>)
        : make_(std::move(other.make_)),
          end_(other.end_),
          until_(other.until_),
          limit_(other.limit_) {}  // only before it is awaited

    /// For `timeout`: the peer is told that the call has so much time.
    void set_limit(duration limit) noexcept { limit_ = limit; }

    void bind(const environment& env) noexcept { env_ = env; }
    /// Makes the call; only once.
    bool await_ready() {
        run_ = make_(limit_ ? detail::deadline_after(env_.owner->now(), *limit_) : until_);
        run_.bind(env_);
        return false;
    }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
        return typename made::awaiter(run_.handle()).await_suspend(awaiting);
    }
    R await_resume() {
        if constexpr (std::is_void_v<R>) {
            typename made::awaiter(run_.handle()).await_resume();
        } else {
            return end_(typename made::awaiter(run_.handle()).await_resume());
        }
    }

private:
    Make make_;
    [[no_unique_address]] End end_;
    time_point until_;
    std::optional<duration> limit_{};
    environment env_{};
    made run_;
};

/// The operation of `calls::call` where all arguments travel as their bytes: it has its messages in place, and no coroutine unless it has to wait
/// before the request can be sent. Described at `calls::call`.
template <class M, class Arguments>
class [[nodiscard]] fixed_call : public detail::fixed_call_base {
    using kept_type = typename Arguments::type;

public:
    using value_type = typename M::result_type;

    /// Made by `calls::call`.
    template <class... Args>
    explicit fixed_call(detail::calls_base& over, Args&&... args)
        : fixed_call_base(over), arguments_(static_cast<Args&&>(args)...) {}
    fixed_call(fixed_call&& other) noexcept(std::is_nothrow_move_constructible_v<kept_type>)
        : fixed_call_base(std::move(other)), arguments_(std::move(other.arguments_)) {}

    /// Makes the call; only once.
    bool await_ready() {
        const detail::request_head head{M::number, M::signature, this->time()};
        std::byte* to = request_.data();
        std::memcpy(to, &head, sizeof head);
        to += sizeof head;
        std::apply(
            [&](const auto&... each) {
                ((std::memcpy(to, std::addressof(each), sizeof each), to += sizeof each), ...);
            },
            arguments_);
        return this->begin(M::facts, request_);
    }
    value_type await_resume() {
        struct over {
            fixed_call& call;
            ~over() { call.finish(); }
        } at_the_end{*this};
        return detail::read_answer<value_type>(M::facts, this->end(M::facts));
    }

private:
    kept_type arguments_;
    std::array<std::byte, sizeof(detail::request_head) + Arguments::bytes> request_;
};

namespace detail {

/// Writes arguments that are kept as a tuple.
template <class Kept>
void write_arguments(encoder& to, const void* kept) {
    std::apply([&](const auto&... each) { (to.write(each), ...); }, *static_cast<const Kept*>(kept));
}

/// A call that `timeout` tells its limit.
template <class A>
concept takes_limit = requires(A& call, duration limit) { call.set_limit(limit); };

}  // namespace detail

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
template <class A>
    requires detail::adaptable<A> && detail::takes_limit<std::remove_reference_t<A>>
[[nodiscard]] call_timeout<A> timeout(A&& op, duration limit) {
    op.set_limit(limit);
    return call_timeout<A>(static_cast<A&&>(op), limit);
}

}  // namespace rdmacoro
