// Exchange of connect_info over TCP, for networks on which a connection cannot be opened without it: the sockets, none of which
// blocks, and the steps of the exchange.
//
// Each side sends its connect_info and, when it has judged the peer's, one more byte: the answer.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace rdmacoro::detail {

/// A TCP socket that does not block; -1: `errno` is the reason.
[[nodiscard]] int open_exchange_socket(const inet_endpoint& of) noexcept;

/// Listens on `at`. `fd` is the socket, to be closed by the caller even after a failure; -1: none was opened. Nullptr,
/// or the step that failed: `errno` is the reason.
[[nodiscard]] const char* listen_for_exchange(const inet_endpoint& at, unsigned queue, int& fd) noexcept;

/// Calls `take(fd)` for the connections that wait at a listening socket, for 50 us or one of them; `take` must close the descriptor. 0, or the
/// number of the system's error where it could not have the next one.
template <class Function>
int accept_exchange(int listening, Function take) noexcept {
    constexpr auto most_time = std::chrono::microseconds(50);
    const auto limit = std::chrono::steady_clock::now() + most_time;
    do {
        const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return errno == EAGAIN ? 0 : errno;
        take(fd);
    } while (std::chrono::steady_clock::now() <= limit);
    return 0;
}

/// A socket that is being connected. -1: `refused` is the number of the error that refused it, or 0 where no socket
/// could be opened; `errno` is the reason.
[[nodiscard]] int connect_for_exchange(const inet_endpoint& to, int& refused) noexcept;

/// Sends small messages at once, and detects a dead peer host by keepalive.
void set_exchange_options(int fd) noexcept;

/// How an exchange failed: the code, the system's number or 0, and the step.
struct exchange_failure {
    errc code = errc::ok;
    int system = 0;
    const char* step = "";
};

/// The outcome of connecting a socket, from getsockopt: 0, or the error's number. `ECONNREFUSED` where it was connected to itself.
[[nodiscard]] int connect_error(int socket) noexcept;

/// One side of an exchange. Its owner calls `go_on` when the socket has one of the events `wanted`, and acts on the
/// step it returns.
template <std::size_t InfoBytes>
class connect_info_exchange {
public:
    enum class step : std::uint8_t {
        wait,          ///< for an event of the socket
        connect_info,  ///< the peer's has arrived: judge it, `answer`, and go on
        done,          ///< both sides have answered
        failed,        ///< `failure` is the reason
    };

    /// Where this side's connect_info goes before the first step.
    [[nodiscard]] std::byte* own_connect_info() noexcept { return out_.data(); }
    /// This side's connect_info goes out with the answer, and is filled in before.
    void waits() noexcept { to_send_ = 0; }
    /// The socket is still being connected.
    void connects() noexcept { connecting_ = true; }
    /// This side's connect_info is not sent before `release`: it is made only for a peer that has sent its own.
    void hold_back() noexcept { to_send_ = 0; }
    /// This side's connect_info is in place. After `step::connect_info`, before `answer`.
    void release() noexcept { to_send_ = InfoBytes; }

    [[nodiscard]] step go_on(int socket) noexcept {
        if (connecting_ && !connected(socket)) return failure_.code == errc::ok ? step::wait : step::failed;
        if (!send_more(socket)) return fail(errc::peer_lost, errno, "greet");
        while (got_ < in_.size()) {
            const ssize_t n = ::recv(socket, in_.data() + got_, in_.size() - got_, 0);
            if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
            if (n <= 0) return fail(errc::peer_lost, n < 0 ? errno : 0, "greet");
            got_ += static_cast<std::size_t>(n);
            if (info_taken_ || got_ < InfoBytes) continue;
            info_taken_ = true;
            return step::connect_info;
        }
        return got_ < in_.size() || sent_ < to_send_ ? step::wait : step::done;
    }

    /// Sends the byte after the connect_info. False: as `step::failed`.
    [[nodiscard]] bool answer(int socket, std::byte what) noexcept {
        out_[InfoBytes] = what;
        to_send_ = out_.size();
        if (send_more(socket)) return true;
        static_cast<void>(fail(errc::peer_lost, errno, "greet"));
        return false;
    }

    /// The peer's connect_info, from `step::connect_info` on.
    [[nodiscard]] const std::byte* connect_info() const noexcept { return in_.data(); }
    /// The peer's answer, at `step::done`.
    [[nodiscard]] std::byte answered() const noexcept { return in_[InfoBytes]; }
    [[nodiscard]] const exchange_failure& failure() const noexcept { return failure_; }

    /// Events of epoll.
    [[nodiscard]] std::uint32_t wanted() const noexcept {
        return EPOLLIN | EPOLLRDHUP | (sent_ < to_send_ ? EPOLLOUT : 0u);
    }

private:
    [[nodiscard]] bool connected(int socket) noexcept {
        const int why = connect_error(socket);
        if (why != 0) {
            static_cast<void>(
                fail(why == ETIMEDOUT || why == EHOSTUNREACH ? errc::timed_out : errc::connection_refused,
                     why, "connect"));
            return false;
        }
        connecting_ = inet_endpoint::peer(socket).bytes == 0;
        return !connecting_;
    }

    [[nodiscard]] bool send_more(int socket) noexcept {
        while (sent_ < to_send_) {
            const ssize_t n = ::send(socket, out_.data() + sent_, to_send_ - sent_, MSG_NOSIGNAL);
            if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
            sent_ += static_cast<std::size_t>(n);
        }
        return true;
    }

    step fail(errc code, int system, const char* where) noexcept {
        failure_ = {code, system, where};
        return step::failed;
    }

    bool connecting_ = false;
    bool info_taken_ = false;  // the peer's connect_info was handed out
    std::size_t sent_ = 0;
    std::size_t to_send_ = InfoBytes;
    std::size_t got_ = 0;
    exchange_failure failure_;
    std::array<std::byte, InfoBytes + 1> out_{};
    std::array<std::byte, InfoBytes + 1> in_{};
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/connect_info_exchange.ipp>
#endif
