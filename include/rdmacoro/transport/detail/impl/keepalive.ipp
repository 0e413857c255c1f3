// Bodies of keepalive.hpp.
#pragma once

#include <rdmacoro/transport/detail/keepalive.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace rdmacoro::detail {

RDMACORO_COLD void set_keepalive(int fd, duration limit) noexcept {
    const auto set = [fd](int level, int name, std::int64_t value) noexcept {
        const int number = static_cast<int>(value);
        ::setsockopt(fd, level, name, &number, sizeof number);
    };
    // The kernel's numbers are whole seconds; it takes no idle time above 32767.
    const std::int64_t seconds = std::clamp<std::int64_t>(limit / std::chrono::seconds(1), 2, 32'767);
    // Silence counts from the first unanswered probe on: before it nothing was asked. So a network that was away, but for the time between
    // two probes, for a shorter time than the limit ends no idle connection.
    const std::int64_t between = std::max<std::int64_t>(1, seconds / 8);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, between);
    set(IPPROTO_TCP, TCP_KEEPINTVL, between);
    set(IPPROTO_TCP, TCP_KEEPCNT, (seconds + between - 1) / between);
#if defined(TCP_RTO_MAX_MS)
    constexpr int longest_retry = TCP_RTO_MAX_MS;
#else
    constexpr int longest_retry = 44;  // Linux 6.15; older kernels refuse it
#endif
    // Without it the probes of a window that stays closed come two minutes apart.
    set(IPPROTO_TCP, longest_retry, std::clamp<std::int64_t>(1000 * between, 1000, 120'000));
}

RDMACORO_COLD void set_silence_limit(int fd, duration limit) noexcept {
    set_keepalive(fd, limit);
    // The kernel ends its probes by this, too, once it is set.
    const auto milliseconds = std::clamp<std::int64_t>(limit / std::chrono::milliseconds(1), 1000, 1 << 30);
    const auto number = static_cast<unsigned>(milliseconds);
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &number, sizeof number);
}

}  // namespace rdmacoro::detail
