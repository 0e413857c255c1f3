// verbs_listener: accepts connections and opens them concurrently.
#pragma once

#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/detail/exchange_listener.hpp>
#include <rdmacoro/transport/detail/link_timer.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/verbs_rc/connection.hpp>
#include <rdmacoro/transport/verbs_rc/kernel_watch.hpp>

#include <memory>
#include <string>

namespace rdmacoro {

namespace detail::verbs {

using accept_queue_type = accept_queue<engine, session, opening_outcome>;

/// The listening identifier or socket, and the accept queue.
class listen_state final : private cm_party, private device_watcher {
public:
    /// Throws an error; its text names the address.
    listen_state(engine& of, const inet_address& address, const inet_endpoint& at);
    listen_state(const listen_state&) = delete;
    listen_state& operator=(const listen_state&) = delete;
    ~listen_state();

    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    [[nodiscard]] accept_queue_type& accepted() noexcept { return accepted_; }
    [[nodiscard]] const engine& of() const noexcept { return engine_; }

private:
    [[gnu::cold, noreturn]] void refuse(const inet_address& address, const char* what, int why);
    void listen_by_cm(const inet_address& address, inet_endpoint at);
    [[nodiscard]] const char* bind(const inet_endpoint& at, int& why) noexcept;
    void addresses_changed() noexcept;
    [[nodiscard]] bool address_is_there() const;
    RDMACORO_DECL void cm_event(const cm_news& news) noexcept override;
    RDMACORO_DECL void device_gone() noexcept override;
    void admit(int fd) noexcept;

    engine& engine_;
    rdma_cm_id* id_ = nullptr;
    inet_endpoint address_;
    bool follows_ = false;  // it listens on whichever address the device has
    accept_queue_type accepted_;
    exchange_listener socket_;
    kernel_watch addresses_;
    link_timer gone_;  // the address is
};

[[nodiscard]] task<verbs_connection> accept(listen_state& state);

}  // namespace detail::verbs

/// Listens on one address of a domain's device. Opens connections by itself while the scheduler runs; `accept` returns
/// the open ones. Over rdma_cm, when that address is taken away: a listener on `*` goes on at another address of the device, with the
/// same port; any other ends, unless the address comes back within `verbs_options::handshake_timeout`. Destroying it ends listening,
/// closes connections not yet returned by `accept`, and ends a pending `accept` with `errc::closed`.
class verbs_listener {
public:
    verbs_listener() noexcept = default;
    explicit verbs_listener(std::unique_ptr<detail::verbs::listen_state> state) noexcept
        : state_(std::move(state)) {}

    /// Awaitable.
    /// Completes: when a client has connected. A client that violates the protocol is dropped and not returned.
    /// Buffers: none.
    /// Concurrency: any number at a time; they are served in order.
    /// Errors: `errc::closed` when the listener is destroyed; `errc::unsupported` when the device was taken away: the domain has
    ///     no use any more; `errc::address_invalid` when the address was taken away.
    /// Cancellation: at any time; the next client waits for the next call.
    /// Example:
    ///     rdmacoro::verbs_connection made = co_await listening.accept();
    [[nodiscard]] task<verbs_connection> accept() { return detail::verbs::accept(*state_); }

    /// The address it listens on now, with the real port: "verbs://10.0.0.1:7471".
    [[nodiscard]] std::string address() const { return state_->address().url("verbs"); }

private:
    std::unique_ptr<detail::verbs::listen_state> state_;
};

namespace detail::verbs {

[[nodiscard]] task<verbs_listener> listen(engine& by, inet_address address);

}  // namespace detail::verbs
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/listener.ipp>
#endif
