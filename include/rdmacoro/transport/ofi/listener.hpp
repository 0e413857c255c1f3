// ofi_listener: accepts connections and opens them concurrently.
#pragma once

#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/detail/exchange_listener.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/ofi/connection.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace rdmacoro {

namespace detail::fabric {

using accept_queue_type = accept_queue<engine, session, opening_outcome>;

/// The listening socket and the accept queue.
class listen_state final : private listening {
public:
    /// Throws an error; its text names the address.
    listen_state(engine& of, const inet_address& address, const inet_endpoint& at);
    listen_state(const listen_state&) = delete;
    listen_state& operator=(const listen_state&) = delete;
    ~listen_state() { static_cast<list_node<listening_tag>&>(*this).unlink(); }

    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    [[nodiscard]] accept_queue_type& accepted() noexcept { return accepted_; }
    [[nodiscard]] std::string_view scheme() const noexcept { return engine_.scheme(); }
    [[nodiscard]] engine& of() const noexcept { return engine_; }

private:
    [[gnu::cold, noreturn]] void refuse(const inet_address& address, const char* what, int why);
    void admit(int fd) noexcept;

    engine& engine_;
    inet_endpoint address_;
    accept_queue_type accepted_;
    exchange_listener socket_;
};

[[nodiscard]] task<ofi_connection> accept(listen_state& state);

}  // namespace detail::fabric

/// Listens on one address of this host. Opens connections by itself while the scheduler runs; `accept` returns
/// the open ones. Destroying it ends listening, closes connections not yet returned by `accept`, and ends a pending `accept`
/// with `errc::closed`.
class ofi_listener {
public:
    ofi_listener() noexcept = default;
    explicit ofi_listener(std::unique_ptr<detail::fabric::listen_state> state) noexcept
        : state_(std::move(state)) {}

    /// Awaitable.
    /// Completes: when a client has connected. A client that violates the protocol is dropped and not returned.
    /// Buffers: none.
    /// Concurrency: any number at a time; they are served in order.
    /// Errors: `errc::closed` when the listener is destroyed; `errc::no_resources` when the domain is broken: the text says by what.
    /// Cancellation: at any time; the next client waits for the next call.
    /// Example:
    ///     rdmacoro::ofi_connection made = co_await listening.accept();
    [[nodiscard]] task<ofi_connection> accept() { return detail::fabric::accept(*state_); }

    /// The address it listens on, with the real port: "ofi+tcp://10.0.0.1:7471".
    [[nodiscard]] std::string address() const { return state_->address().url(state_->scheme()); }

private:
    std::unique_ptr<detail::fabric::listen_state> state_;
};

namespace detail::fabric {

[[nodiscard]] task<ofi_listener> listen(engine& by, inet_address address);

}  // namespace detail::fabric
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/listener.ipp>
#endif
