// with_stop(op, token): an operation that also stops when the given token does.
#pragma once

#include <rdmacoro/coro/detail/adaptor.hpp>
#include <rdmacoro/coro/detail/stop_bridge.hpp>

namespace rdmacoro {

namespace detail {

/// A second token that stops an operation. One for each kind of token.
template <class Token>
class second_token;

template <>
class second_token<std::stop_token> : public stopping_hooks {
public:
    explicit second_token(std::stop_token token) noexcept : token_(std::move(token)) {}
    second_token(second_token&& other) noexcept : token_(std::move(other.token_)) {}

    void before_begin() noexcept {
        if (token_.stop_requested()) source_.request_stop();
    }
    void before_wait() {
        if (!source_.stop_requested()) bridge_.connect(owner(), token_, source_);
    }
    void after_end() noexcept {
        bridge_.disconnect();
        source_.unfollow();  // the token around it may end before this does
    }

private:
    std::stop_token token_;
    stop_bridge bridge_;
};

template <>
class second_token<local_stop_token> : public stopping_hooks {
public:
    explicit second_token(local_stop_token token) noexcept : token_(token) {}
    second_token(second_token&& other) noexcept : token_(other.token_) {}

    /// Attached before the operation begins, which may itself stop the token.
    void before_begin() noexcept {
        if (token_.stop_requested()) {
            source_.request_stop();
            return;
        }
        hook_.target = &source_;
        hook_.attach(token_, [](local_stop_callback& self) noexcept {
            static_cast<hook&>(self).target->request_stop();
        });
    }
    static void before_wait() noexcept {}
    void after_end() noexcept {
        hook_.detach();
        source_.unfollow();
    }

private:
    struct hook : local_stop_callback {
        local_stop_source* target = nullptr;
    };
    local_stop_token token_;
    hook hook_;
};

}  // namespace detail

/// The operation of `with_stop`. Described at `with_stop`.
template <class A, class Token>
class with_stop_operation : public detail::adaptor<A, detail::second_token<Token>> {
public:
    with_stop_operation(A&& inner, Token token)
        : detail::adaptor<A, detail::second_token<Token>>(static_cast<A&&>(inner), std::move(token)) {}
};

/// Awaitable.
/// Completes: when `op` does.
/// Buffers: as for `op`.
/// Concurrency: as for `op`. An lvalue is borrowed until then, an rvalue moves in. Any thread may stop the token, at any
/// time, which wakes a parked scheduler.
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
/// Buffers: as for `op`.
/// Concurrency: as for `op`. An lvalue is borrowed until then, an rvalue moves in.
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
