// with_stop(op, token): an operation that also stops when the given token does.
#pragma once

#include <rdmacoro/coro/detail/adapted.hpp>
#include <rdmacoro/coro/detail/stop_bridge.hpp>

namespace rdmacoro {

namespace detail {

/// The connection from a token to the source of `with_stop`. One for each kind of token.
template <class Token>
class stop_link;

template <>
class stop_link<std::stop_token> {
public:
    void connect(scheduler& owner, const std::stop_token& token, local_stop_source& target) {
        bridge_.connect(owner, token, target);
    }
    void disconnect() noexcept { bridge_.disconnect(); }

private:
    stop_bridge bridge_;
};

template <>
class stop_link<local_stop_token> {
public:
    void connect(scheduler&, local_stop_token token, local_stop_source& target) noexcept {
        hook_.target = &target;
        hook_.attach(token, [](local_stop_callback& self) noexcept {
            static_cast<hook&>(self).target->request_stop();
        });
    }
    void disconnect() noexcept { hook_.detach(); }

private:
    struct hook : local_stop_callback {
        local_stop_source* target = nullptr;
    };
    hook hook_;
};

}  // namespace detail

/// What `with_stop` gives. Described at `with_stop`.
template <class A, class Token>
class with_stop_operation {
    using inner_type = detail::adapted<A>;

public:
    using value_type = typename inner_type::value_type;

    with_stop_operation(A&& inner, Token token) : inner_(static_cast<A&&>(inner)), token_(std::move(token)) {}

    /// Only before it is awaited.
    with_stop_operation(with_stop_operation&& other)
        : inner_(std::move(other.inner_)), token_(std::move(other.token_)) {}

    void bind(const environment& env) noexcept {
        owner_ = env.owner;
        source_.follow(env.stop);
        inner_.bind({env.owner, source_.get_token()});
    }

    bool await_ready() {
        if (token_.stop_requested()) source_.request_stop();
        return inner_.await_ready();
    }

    auto await_suspend(std::coroutine_handle<> awaiting) {
        if (owner_ == nullptr) owner_ = &detail::running_scheduler();
        if (!source_.stop_requested()) link_.connect(*owner_, token_, source_);
        return inner_.await_suspend(awaiting);
    }

    value_type await_resume() {
        link_.disconnect();
        return inner_.await_resume();
    }

    /// What `await_resume` gives, without throwing.
    auto take_result()
        requires detail::gives_result<inner_type>
    {
        link_.disconnect();
        return inner_.take_result();
    }

private:
    // The source outlives what the inner operation attaches to it, and the link to what stops it.
    local_stop_source source_;
    inner_type inner_;
    Token token_;
    scheduler* owner_ = nullptr;
    detail::stop_link<Token> link_;
};

/// Awaitable.
/// Completes: when `op` does.
/// Buffers: as `op` says.
/// Concurrency: as `op` says. An lvalue is borrowed until then, an rvalue moves in. Any thread may stop the token, at any
/// time; the scheduler is woken for it.
/// Errors: those of `op`.
/// Cancellation: `op` is canceled when `token` is stopped and when the task's own token is.
/// Example:
///     std::stop_source quit;
///     auto got = co_await with_stop(peer.recv(buffer), quit.get_token());
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] with_stop_operation<A, std::stop_token> with_stop(A&& op, std::stop_token token) {
    return with_stop_operation<A, std::stop_token>(static_cast<A&&>(op), std::move(token));
}

/// As above for a token of the same scheduler; its source must outlive the operation.
///
/// Awaitable.
/// Completes: when `op` does.
/// Buffers: as `op` says.
/// Concurrency: as `op` says. An lvalue is borrowed until then, an rvalue moves in.
/// Errors: those of `op`.
/// Cancellation: `op` is canceled when `token` is stopped and when the task's own token is.
/// Example:
///     local_stop_source quit;
///     auto got = co_await with_stop(peer.recv(buffer), quit.get_token());
template <class A>
    requires detail::adaptable<A>
[[nodiscard]] with_stop_operation<A, local_stop_token> with_stop(A&& op, local_stop_token token) {
    return with_stop_operation<A, local_stop_token>(static_cast<A&&>(op), token);
}

}  // namespace rdmacoro
