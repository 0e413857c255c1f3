// The user's options of the tcp transport.
#pragma once

#include <rdmacoro/coro/clock.hpp>

#include <cstdint>

namespace rdmacoro {

/// Kernel features that the tcp transport uses when the kernel has them. All are optional down to Linux 5.19; taking one
/// away here shows how an older kernel behaves.
enum class tcp_feature : std::uint32_t {
    none = 0,
    deferred_task_work = 1,  ///< completions wait until they are asked for (Linux 6.1); needs `single_issuer`
    single_issuer = 2,       ///< only the scheduler's thread submits (Linux 6.0)
    multishot_receive = 4,   ///< one request receives many times, into a ring of buffers (Linux 6.0)
    all = 7,
};

/// Both sets.
[[nodiscard]] constexpr tcp_feature operator|(tcp_feature a, tcp_feature b) noexcept {
    return static_cast<tcp_feature>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
/// `a` without `b`.
[[nodiscard]] constexpr tcp_feature operator-(tcp_feature a, tcp_feature b) noexcept {
    return static_cast<tcp_feature>(static_cast<std::uint32_t>(a) & ~static_cast<std::uint32_t>(b));
}
/// Whether `set` has all of `wanted`.
[[nodiscard]] constexpr bool has(tcp_feature set, tcp_feature wanted) noexcept {
    return (static_cast<std::uint32_t>(set) & static_cast<std::uint32_t>(wanted)) ==
           static_cast<std::uint32_t>(wanted);
}

/// Options of a tcp domain; the defaults suit most programs.
struct tcp_options {
    /// Features to use if the kernel has them.
    tcp_feature features = tcp_feature::all;

    /// A connection, on either side, that has not greeted after this long, more than 0, is given up.
    duration handshake_timeout = std::chrono::seconds(10);

    /// A host that answers nothing for this long, neither to data nor to a probe, counts as dead: its links end with
    /// `errc::peer_lost`, up to two eighths of this time later, or a second where that is more. At least a second. The kernel asks
    /// every eighth of it, in whole seconds, over a link that is idle: a network that is away for less than seven eighths of it, or for
    /// a second less than it where that is less, ends no idle link. A peer that reads nothing while it computes, or that was stopped,
    /// is not silent: its kernel answers.
    duration peer_timeout = std::chrono::seconds(60);

    /// Accepted sockets of one listener that have not greeted yet or were not yet returned by `accept`; at least one. A quarter of
    /// RLIMIT_NOFILE if that is less. When as many wait, one that has not greeted is dropped for each new one, of the host that holds the
    /// most: at once for a client of a host that holds fewer, else after a tenth of `handshake_timeout`. Meanwhile the system's own queue,
    /// as long as asked for here, fills. When it is half full, or longer than half the places, clients are refused that come from a host
    /// with four places and a 64th of all, if none holds more and its oldest has not greeted for a hundredth of `handshake_timeout`.
    unsigned most_waiting = 256;

    /// Links that receive often are polled by a receive each turn, which costs a system call and has the least latency: at most
    /// so many. All others are armed in the kernel, and cost a turn nothing until something comes.
    unsigned most_polled = 4;
};

}  // namespace rdmacoro
