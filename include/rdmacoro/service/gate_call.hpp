// gate_call: a call through a gate that has not begun, for coroutines and for threads without a scheduler, and `timeout` for it.
#pragma once

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/call_error.hpp>
#include <rdmacoro/service/detail/gate_entry.hpp>
#include <rdmacoro/service/detail/remote_task.hpp>

#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace rdmacoro {

/// A call through a gate: the operation of `gate_pass::call` and its like. Described at `gate_pass::call`.
template <class R, class Make>
class [[nodiscard]] gate_call : public detail::remote_task<R, Make, detail::gate_entry> {
    using base = detail::remote_task<R, Make, detail::gate_entry>;

public:
    /// For `gate_pass`.
    gate_call(detail::gate_lane& through, std::uint32_t to, Make&& make)
        : base(through.port(), make_error_code(errc::closed), std::move(make),
               detail::gate_entry(through, to)) {}

    /// For `timeout`: the peer is told that the call has so much time.
    void set_limit(duration limit) noexcept { this->limit_ = limit; }

    /// For a thread without a scheduler. Begins the call unless it has begun, when the gate has room, and sleeps until it has ended. Returns
    /// its value or throws its error. Throws `errc::invalid_argument` on the gate's own thread, which would wait for itself.
    R get() {
        check("gate_call::get");
        wait();
        return this->await_resume();
    }
    /// The same with a limit: after it the call is canceled, and ends with `errc::timed_out`. The peer is told the limit where the call begins here.
    R get(duration limit) {
        check("gate_call::get");
        const time_point until = detail::deadline_after(detail::monotonic_now(), limit);
        if (!this->begun()) {
            const bool room = this->entry_.wait_for_room(until);
            const duration left = until - detail::monotonic_now();
            if (!room && left <= duration::zero())
                detail::throw_error(errc::timed_out, "gate_call::get: there was no room in the gate");
            set_limit(left > duration::zero() ? left : duration::zero());
        } else if (!this->wait_until(until)) {
            stop();
            wait();
            if (std::error_code(this->code_) == errc::canceled)
                detail::throw_error(errc::timed_out, "gate_call::get: the call had not ended until then");
        }
        wait();
        return this->await_resume();
    }
    /// As `get`, and returns the error instead of throwing it.
    [[nodiscard]] result<R> get_result() {
        check("gate_call::get_result");
        wait();
        return this->take_result();
    }
    /// Begins the call unless it has begun, and sleeps until it has ended, or `limit` has passed: then it returns false, and the call goes on. Where
    /// the gate had no room until then, it has not begun.
    [[nodiscard]] bool wait_for(duration limit) {
        check("gate_call::wait_for");
        const time_point until = detail::deadline_after(detail::monotonic_now(), limit);
        if (!this->begun() && !this->entry_.wait_for_room(until) && !this->at_->closed()) return false;
        this->begin();
        return this->done() || this->wait_until(until);
    }
    /// For a thread without a scheduler: the call is to end soon, with `errc::canceled` unless it has ended; `get` waits for that.
    void stop() noexcept {
        if (this->begun() && !this->done()) this->ask_to_stop();
    }

private:
    void check(const char* what) const {
        if (this->at_->belongs_here())
            detail::throw_error(errc::invalid_argument,
                                std::string(what) + ": on the gate's own thread; co_await the call there");
        if (this->has_owner())
            detail::throw_error(errc::invalid_argument,
                                std::string(what) + ": a coroutine awaits the call already");
    }
    void wait() {
        this->begin();
        if (!this->done()) static_cast<void>(this->wait_until(time_point::max()));
    }
};

/// As `timeout` for any operation, and the peer is told the limit.
///
/// Awaitable.
/// Completes: when the call does, which is canceled when `limit` has passed since it began.
/// Buffers: as for the call.
/// Concurrency: as for the call.
/// Errors: `errc::timed_out`; else those of the call.
/// Cancellation: passed on to the call.
/// Example:
///     auto value = co_await timeout(pass.call(9, kv::get, key), 2ms);
template <class R, class Make>
[[nodiscard]] auto timeout(gate_call<R, Make>&& op, duration limit) {
    op.set_limit(limit);
    return timeout_operation<gate_call<R, Make>>(std::move(op), limit);
}

}  // namespace rdmacoro
