// call_timeout: the time limit of a call, of which the peer knows.
#pragma once

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/call_error.hpp>

namespace rdmacoro {

/// The operation of `timeout` of a call. Described at those of `call_operation` and `node_call_operation`.
template <class A>
class [[nodiscard]] call_timeout : public timeout_operation<A> {
    using base = timeout_operation<A>;

public:
    using typename base::value_type;

    /// Made by `timeout`.
    call_timeout(A&& call, duration limit) : base(static_cast<A&&>(call), limit), limit_(limit) {}

    value_type await_resume() {
        try {
            return base::await_resume();
        } catch (const error&
                     ended) {  // the peer keeps the same time, and may be the first to say that it is over
            detail::rethrow_within(ended, limit_);
        }
    }

private:
    duration limit_;
};

}  // namespace rdmacoro
