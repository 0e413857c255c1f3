// Connections that open by an exchange of cards over TCP, for networks that need to be told about the peer: the sockets, none of
// which blocks, and the steps of the exchange.
//
// Each side sends a card and, when it has taken the other's, one byte more.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail {

[[nodiscard]] inline int open_card_socket(const inet_endpoint& of) noexcept {
    return ::socket(of.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
}

/// A socket that listens for those who have cards, to be closed by who has `fd`, whatever became of it. Nullptr, or the step that
/// failed: `errno` says why.
[[nodiscard]] inline const char* listen_for_cards(const inet_endpoint& at, unsigned queue, int& fd) noexcept {
    fd = open_card_socket(at);
    if (fd < 0) return "open a socket";
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, at.get(), at.bytes) != 0) return "bind";
    return ::listen(fd, static_cast<int>(queue)) != 0 ? "listen" : nullptr;
}

/// Calls `take(fd)` for those who came, which closes the descriptor some time.
template <class Function>
void accept_cards(int listening, Function take) noexcept {
    constexpr int most = 64;
    for (int n = 0; n < most; ++n) {
        const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        take(fd);
    }
}

/// A socket that is being connected. -1: `refused` is why not, or 0 if there was no socket to be had, as `errno` says.
[[nodiscard]] inline int connect_for_cards(const inet_endpoint& to, int& refused) noexcept {
    refused = 0;
    const int fd = open_card_socket(to);
    if (fd < 0 || ::connect(fd, to.get(), to.bytes) == 0 || errno == EINPROGRESS) return fd;
    refused = errno;
    ::close(fd);
    return -1;
}

/// Cards are small and go at once; a host that went without a word is noticed some time.
inline void set_card_options(int fd) noexcept {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/// One side of an exchange. Its owner calls `go_on` when the socket has one of the events `wanted`, and does what it answers.
template <std::size_t CardBytes>
class card_exchange {
public:
    enum class step : std::uint8_t {
        wait,    ///< for the socket
        card,    ///< the peer's is there: judge it, `answer`, and go on
        done,    ///< both have answered
        failed,  ///< `failure` says how
    };
    struct failed_step {
        errc code = errc::ok;
        int system = 0;
        const char* step = "";
    };

    /// Where this side's card goes before the first step.
    [[nodiscard]] std::byte* own_card() noexcept { return out_.data(); }
    /// The socket is not connected yet.
    void connects() noexcept { connecting_ = true; }

    [[nodiscard]] step go_on(int socket) noexcept {
        if (connecting_ && !connected(socket)) return failure_.code == errc::ok ? step::wait : step::failed;
        if (!say(socket)) return fail(errc::peer_lost, errno, "greet");
        while (got_ < in_.size()) {
            const ssize_t n = ::recv(socket, in_.data() + got_, in_.size() - got_, 0);
            if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
            if (n <= 0) return fail(errc::peer_lost, n < 0 ? errno : 0, "greet");
            got_ += static_cast<std::size_t>(n);
            if (carded_ || got_ < CardBytes) continue;
            carded_ = true;
            return step::card;
        }
        return got_ < in_.size() || sent_ < to_send_ ? step::wait : step::done;
    }

    /// Sends the byte behind the card. False: as `step::failed`.
    [[nodiscard]] bool answer(int socket, std::byte what) noexcept {
        out_[CardBytes] = what;
        ++to_send_;
        if (say(socket)) return true;
        static_cast<void>(fail(errc::peer_lost, errno, "greet"));
        return false;
    }

    /// The peer's card, from `step::card` on.
    [[nodiscard]] const std::byte* card() const noexcept { return in_.data(); }
    /// The peer's byte, at `step::done`.
    [[nodiscard]] std::byte answered() const noexcept { return in_[CardBytes]; }
    [[nodiscard]] const failed_step& failure() const noexcept { return failure_; }

    /// Events of epoll.
    [[nodiscard]] std::uint32_t wanted() const noexcept {
        return EPOLLIN | EPOLLRDHUP | (sent_ < to_send_ ? EPOLLOUT : 0u);
    }

private:
    [[nodiscard]] bool connected(int socket) noexcept {
        int why = 0;
        socklen_t bytes = sizeof why;
        if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &why, &bytes) != 0) why = errno;
        if (why != 0) {
            static_cast<void>(
                fail(why == ETIMEDOUT || why == EHOSTUNREACH ? errc::timed_out : errc::connection_refused,
                     why, "connect"));
            return false;
        }
        connecting_ = inet_endpoint::peer(socket).bytes == 0;
        return !connecting_;
    }

    [[nodiscard]] bool say(int socket) noexcept {
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
    bool carded_ = false;  // the peer's card was handed out
    std::size_t sent_ = 0;
    std::size_t to_send_ = CardBytes;
    std::size_t got_ = 0;
    failed_step failure_;
    std::array<std::byte, CardBytes + 1> out_{};
    std::array<std::byte, CardBytes + 1> in_{};
};

}  // namespace rdmacoro::detail
