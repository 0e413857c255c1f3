// Bodies of connect_info_exchange.hpp that are no templates.
#pragma once

#include <rdmacoro/transport/detail/connect_info_exchange.hpp>

#include <cerrno>

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD int open_exchange_socket(const inet_endpoint& of) noexcept {
    return ::socket(of.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
}

RDMACORO_COLD const char* listen_for_exchange(const inet_endpoint& at, unsigned queue, int& fd) noexcept {
    fd = open_exchange_socket(at);
    if (fd < 0) return "open a socket";
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, at.get(), at.bytes) != 0) return "bind";
    return ::listen(fd, static_cast<int>(queue)) != 0 ? "listen" : nullptr;
}

RDMACORO_COLD int connect_for_exchange(const inet_endpoint& to, int& refused) noexcept {
    refused = 0;
    const int fd = open_exchange_socket(to);
    if (fd < 0 || ::connect(fd, to.get(), to.bytes) == 0 || errno == EINPROGRESS) return fd;
    refused = errno;
    ::close(fd);
    return -1;
}

RDMACORO_COLD void set_exchange_options(int fd) noexcept {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

RDMACORO_COLD int connect_error(int socket) noexcept {
    int why = 0;
    socklen_t bytes = sizeof why;
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &why, &bytes) != 0) return errno;
    return why == 0 && inet_endpoint::connected_to_itself(socket) ? ECONNREFUSED : why;
}

}  // namespace rdmacoro::detail
