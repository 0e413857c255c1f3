// as_result(op): co_await gives a result<T> and throws nothing.
#pragma once

#include <rdmacoro/coro/detail/adaptor.hpp>

namespace rdmacoro {

/// The operation of `as_result`. Described at `as_result`.
template <class A>
class as_result_operation : public detail::adaptor<A, detail::no_hooks> {
    using base = detail::adaptor<A, detail::no_hooks>;
    using inner_value = typename base::value_type;
    static_assert(!std::is_reference_v<inner_value>, "as_result: a result<T&> cannot be; return a pointer");

public:
    using value_type = result<inner_value>;

    explicit as_result_operation(A&& inner) : base(static_cast<A&&>(inner)) {}

    value_type await_resume() {
        if constexpr (detail::gives_result<detail::adapted<A>>) {
            return base::take_result();
        } else {
            return detail::catch_error<inner_value>([this]() -> inner_value { return base::await_resume(); });
        }
    }
};

/// Awaitable.
/// Completes: when `op` does, with its value or its error code in a `result<T>`.
/// Buffers: as for `op`.
/// Concurrency: as for `op`. An lvalue is borrowed until then, an rvalue moves in.
/// Errors: operations throw none. From tasks, `std::system_error` and `rdmacoro::error` become the result's
/// code (the message's context is lost); other exceptions pass through.
/// Cancellation: as for `op`; the result then holds `errc::canceled`.
/// Example:
///     auto got = co_await as_result(peer.recv(buffer));
///     if (!got) log(got.error().message());
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] as_result_operation<A> as_result(A&& op) {
    return as_result_operation<A>(static_cast<A&&>(op));
}

}  // namespace rdmacoro
