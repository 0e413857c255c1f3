// Opening a connection: socket options, the greeting both ways, and the limit on how long that may take.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/transport/tcp/address.hpp>
#include <rdmacoro/transport/tcp/options.hpp>
#include <rdmacoro/transport/tcp/session.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// Sets the options of a connected socket. None is required, so failures are ignored.
RDMACORO_DECL void set_tcp_options(int fd, const tcp_options& options) noexcept;

/// Greets on a connected socket, after connecting it if need be, and calls `ended` once: with `errc::ok`, or with the
/// reason, after which the socket is closed. Not called once the handshake is dropped. Both sides send at once.
class tcp_handshake : public tcp_watcher, private timer_node {
public:
    /// `system` is the number of a failed system call, or 0.
    using function = void (*)(tcp_handshake&, errc outcome, int system) noexcept;

    tcp_handshake() noexcept = default;
    tcp_handshake(const tcp_handshake&) = delete;
    tcp_handshake& operator=(const tcp_handshake&) = delete;
    ~tcp_handshake() { drop(); }

    /// Takes over the descriptor.
    void accept(tcp_engine& engine, int fd, function ended);

    /// Takes over the descriptor.
    void connect(tcp_engine& engine, int fd, const inet_endpoint& to, function ended);

    /// Gives the socket up.
    void drop() noexcept;

    /// The socket, after `ok`.
    [[nodiscard]] tcp_session& take() noexcept { return *std::exchange(session_, nullptr); }

    /// The version in the peer's greeting, after `version_mismatch`.
    [[nodiscard]] std::uint32_t peer_version() const noexcept { return peer_version_; }

    RDMACORO_DECL void progress(tcp_session& session) noexcept override;

private:
    void begin(tcp_engine& engine, int fd, function ended);

    void judge(tcp_session& session) noexcept;

    void fail(errc reason, int system) noexcept;

    tcp_session* session_ = nullptr;
    function ended_ = nullptr;
    tcp_greeting own_;
    std::uint32_t peer_version_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/handshake.ipp>
#endif
