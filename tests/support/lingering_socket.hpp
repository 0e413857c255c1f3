#pragma once

#include <rdmacoro/transport/shm/segment.hpp>

#include <stdexcept>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace rdmacoro::test {

/// A TCP connection whose close takes `linger_seconds`, as its other end, which is kept open, reads nothing.
inline constexpr int linger_seconds = 2;
inline detail::shm::unique_fd lingering_socket(std::vector<detail::shm::unique_fd>& kept) {
    const auto must = [](bool good, const char* what) {
        if (!good) throw std::runtime_error(what);
    };
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    const detail::shm::unique_fd listening(::socket(AF_INET, SOCK_STREAM, 0));
    const int little = 4096;
    must(::setsockopt(listening.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little) == 0, "SO_RCVBUF");
    must(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0, "bind");
    must(::listen(listening.get(), 1) == 0, "listen");
    must(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &length) == 0, "getsockname");
    detail::shm::unique_fd out(::socket(AF_INET, SOCK_STREAM, 0));
    must(::connect(out.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0, "connect");
    kept.emplace_back(::accept(listening.get(), nullptr, nullptr));
    must(static_cast<bool>(kept.back()), "accept");
    const std::vector<char> bytes(65536);
    while (::send(out.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {}
    const linger slow{1, linger_seconds};
    must(::setsockopt(out.get(), SOL_SOCKET, SO_LINGER, &slow, sizeof slow) == 0, "SO_LINGER");
    return out;
}

}  // namespace rdmacoro::test
