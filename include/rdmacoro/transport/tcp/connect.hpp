// Connecting: one operation for each address of the peer, one coroutine that tries them in turn.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/tcp/connection.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>
#include <rdmacoro/transport/tcp/handshake.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// How one attempt to connect ended.
struct tcp_attempt {
    errc outcome = errc::ok;
    int system = 0;  // errno of the system call that failed, if one did
    std::uint32_t peer_version = 0;
    tcp_session* session = nullptr;
};

/// Connects to one address and greets. Canceling it closes the socket.
class tcp_connect final : public basic_operation<tcp_connect, tcp_attempt> {
public:
    tcp_connect(tcp_engine& engine, const inet_endpoint& to) noexcept
        : basic_operation(&engine.owner()), engine_(engine), to_(to) {}
    tcp_connect(const tcp_connect&) = delete;
    tcp_connect& operator=(const tcp_connect&) = delete;
    ~tcp_connect();

    void start() noexcept;
    void cancel() noexcept;
    void finish_canceled() noexcept { attempt_.outcome = errc::canceled; }

    [[nodiscard]] result<tcp_attempt> outcome() noexcept;

private:
    struct embedded final : tcp_handshake {
        tcp_connect* self = nullptr;
    };

    void end(errc outcome, int system) noexcept;

    tcp_engine& engine_;
    inet_endpoint to_;
    tcp_attempt attempt_;
    embedded handshake_;
};

/// Throws an error; its text names the address and the remedy.
[[gnu::cold, noreturn]] RDMACORO_DECL void
throw_connect_error(const inet_address& address, const inet_endpoint& endpoint, const tcp_attempt& attempt);

RDMACORO_DECL task<tcp_connection> connect_tcp(tcp_engine& engine, inet_address address);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/connect.ipp>
#endif
