// Bodies of close_elsewhere.hpp.
#pragma once

#include <rdmacoro/coro/detail/signals_blocked.hpp>
#include <rdmacoro/transport/detail/close_elsewhere.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <fcntl.h>
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

/// The numbers of a file of /proc, at most `N`; the rest of them are 0.
template <std::size_t N>
[[nodiscard]] std::array<unsigned long, N> numbers_of(const char* path) noexcept {
    std::array<unsigned long, N> numbers{};
    char text[128] = {};
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return numbers;
    const ssize_t bytes = ::read(file, text, sizeof text - 1);
    ::close(file);
    if (bytes <= 0) return numbers;
    char* at = text;
    for (unsigned long& number : numbers) number = std::strtoul(at, &at, 10);
    return numbers;
}

RDMACORO_COLD bool is_indistinct_user() noexcept {
    static const unsigned long told = numbers_of<1>("/proc/sys/kernel/overflowuid")[0];
    if (::geteuid() != (told != 0 ? told : 65534)) return false;
    // Not kept: a child made by fork may enter another namespace.
    constexpr unsigned long all = 0xffff'ffff;
    return numbers_of<3>("/proc/self/uid_map") != std::array<unsigned long, 3>{0, 0, all};
}

RDMACORO_COLD bool is_this_user(uid_t user) noexcept { return user == ::geteuid() && !is_indistinct_user(); }

RDMACORO_COLD bool is_own_user(int socket) noexcept {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && is_this_user(peer.uid);
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
