// as_result(op): co_await gives a result<T> and throws nothing.
#pragma once

#include <rdmacoro/coro/detail/adapted.hpp>

namespace rdmacoro {

/// What `as_result` gives. Described at `as_result`.
template <class A>
class as_result_operation {
    using inner_type = detail::adapted<A>;
    using value_type_of_inner = typename inner_type::value_type;
    static_assert(!std::is_reference_v<value_type_of_inner>,
                  "as_result: a result<T&> cannot be; return a pointer");

public:
    using value_type = result<value_type_of_inner>;

    explicit as_result_operation(A&& inner) : inner_(static_cast<A&&>(inner)) {}

    void bind(const environment& env) noexcept { inner_.bind(env); }
    bool await_ready() { return inner_.await_ready(); }
    auto await_suspend(std::coroutine_handle<> awaiting) { return inner_.await_suspend(awaiting); }
    value_type await_resume() {
        if constexpr (detail::gives_result<inner_type>) {
            return inner_.take_result();
        } else {
            return detail::catch_error<value_type_of_inner>(
                [this]() -> value_type_of_inner { return inner_.await_resume(); });
        }
    }

private:
    inner_type inner_;
};

/// Awaitable.
/// Completes: when `op` does, with its value or its error code in a `result<T>`.
/// Buffers: as `op` says.
/// Concurrency: as `op` says. An lvalue is borrowed until then, an rvalue moves in.
/// Errors: none are thrown for operations. From tasks, `std::system_error` and `rdmacoro::error` become the result's
/// code (the message's context is lost); other exceptions pass through.
/// Cancellation: as `op` says; the result then holds `errc::canceled`.
/// Example:
///     auto got = co_await as_result(peer.recv(buffer));
///     if (!got) log(got.error().message());
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] as_result_operation<A> as_result(A&& op) {
    return as_result_operation<A>(static_cast<A&&>(op));
}

}  // namespace rdmacoro
