// tcp_listener: accepts connections and greets on all of them at a time.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/tcp/connection.hpp>

#include <string>
#include <utility>

namespace rdmacoro {

namespace detail {
class tcp_listen_state;
}

/// A listening socket of one domain. Greets by itself while the scheduler runs; `accept` returns connections that have
/// greeted. Destroying it closes it, drops connections not yet returned, and ends a pending `accept` with `errc::closed`.
class tcp_listener {
public:
    tcp_listener() noexcept = default;
    explicit tcp_listener(detail::tcp_listen_state* adopted) noexcept : state_(adopted) {}
    tcp_listener(tcp_listener&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    tcp_listener& operator=(tcp_listener&& other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    ~tcp_listener();

    /// Completes when a client has connected and greeted. Several may wait; they are served in order. Clients that do not
    /// speak the protocol are dropped unseen. Ends with `errc::canceled` when stopped; a client that comes then waits for
    /// the next call. Ends with `errc::closed` when the system has shut the socket down (`ss -K`): none comes any more.
    [[nodiscard]] task<tcp_connection> accept();

    /// The address it listens on, with the real port: "127.0.0.1:7471".
    [[nodiscard]] std::string address() const;

    /// Whether clients connect faster than they are taken: the system's queue of them is half full, or longer than half the places.
    [[nodiscard]] bool pressed() const noexcept;

private:
    detail::tcp_listen_state* state_ = nullptr;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/listener.ipp>
#endif
