// Bodies of close_elsewhere.hpp.
#pragma once

#include <rdmacoro/coro/detail/signals_blocked.hpp>
#include <rdmacoro/transport/detail/close_elsewhere.hpp>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail {

inline std::atomic<std::size_t> sockets_closing{0};  // by threads that may outlive all domains

RDMACORO_COLD void close_elsewhere(int socket) noexcept {
    ++sockets_closing;
    const signals_blocked for_thread;
    // Not `std::thread`, which allocates and throws.
    const auto closes = [](void* fd) -> void* {
        ::close(static_cast<int>(reinterpret_cast<std::intptr_t>(fd)));
        --sockets_closing;
        return nullptr;
    };
    pthread_t made{};
    if (::pthread_create(&made, nullptr, closes, reinterpret_cast<void*>(std::intptr_t{socket})) == 0) {
        ::pthread_detach(made);
    } else {
        ::close(socket);
        --sockets_closing;
    }
}

RDMACORO_COLD std::size_t closing_elsewhere() noexcept { return sockets_closing.load(); }

RDMACORO_COLD bool is_own_user(int socket) noexcept {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == ::geteuid();
}

RDMACORO_COLD void close_listener(int listening) noexcept {
    ::shutdown(listening, SHUT_RDWR);  // no further client can connect
    while (closing_elsewhere() < most_closing) {
        const int client = ::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            if (errno != EINVAL && errno != EAGAIN) break;  // out of descriptors or memory
            ::close(listening);                             // its queue is empty
            return;
        }
        if (is_own_user(client)) {
            ::close(client);
        } else {
            close_elsewhere(client);
        }
    }
    close_elsewhere(listening);
}

}  // namespace rdmacoro::detail
