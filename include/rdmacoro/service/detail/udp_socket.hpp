// udp_socket: datagrams for a function, as a progress source.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/progress_source.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rdmacoro::detail {

/// A bound socket. What arrives is given to a function, a few datagrams in a turn of the scheduler; the rest waits in the socket, and what
/// has no room there is lost.
class udp_socket final : private progress_source {
public:
    /// Longer datagrams are dropped.
    static constexpr std::size_t most_bytes = 2048;
    /// Called on the scheduler's thread; must not throw.
    using function = void (*)(void* self, std::span<const std::byte> bytes,
                              const inet_endpoint& from) noexcept;

    /// `at`: "address:port" in numbers, port 0 for any. Throws `errc::address_invalid`, `errc::address_in_use`, `errc::no_resources`.
    udp_socket(scheduler& on, std::string_view at, function arrived, void* self);
    udp_socket(const udp_socket&) = delete;
    udp_socket& operator=(const udp_socket&) = delete;
    RDMACORO_DECL ~udp_socket() override;

    /// The address where it is written in numbers; nothing: it is a name.
    [[nodiscard]] static std::optional<inet_endpoint> in_numbers(const inet_address& address);
    /// "127.0.0.1:7470".
    [[nodiscard]] std::string address() const { return inet_endpoint::local(fd_).text(); }
    /// Without waiting. False: the datagram is lost at once, as there is no room, or no way to this address from this socket.
    bool send(std::span<const std::byte> bytes, const inet_endpoint& to) noexcept;

private:
    static constexpr std::uint32_t polls_between_looks = 1024;
    static constexpr duration most_between_looks = std::chrono::milliseconds(1);
    static constexpr int most_at_once = 32;

    RDMACORO_DECL bool poll() noexcept override;
    [[nodiscard]] RDMACORO_DECL int wake_fd() noexcept override;
    RDMACORO_DECL void arm() noexcept override;
    RDMACORO_DECL void disarm() noexcept override;

    scheduler& on_;
    function arrived_;
    void* self_;
    int fd_ = -1;
    std::uint32_t polls_ = 0;
    time_point looked_{};
    bool armed_ = false;
    bool look_now_ = true;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/udp_socket.ipp>
#endif
