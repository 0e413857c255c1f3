// Bodies of udp_socket.hpp.
#pragma once

#include <rdmacoro/service/detail/udp_socket.hpp>

#include <cerrno>
#include <cstring>

#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD udp_socket::udp_socket(scheduler& on, std::string_view at, function arrived, void* self)
    : on_(on), arrived_(arrived), self_(self) {
    const inet_address where = inet_address::parse("udp", at, ", such as 127.0.0.1:7470");
    const inet_resolved found = inet_resolved::ask(where, AI_PASSIVE | AI_NUMERICHOST);
    if (found.endpoints.empty())
        throw error(errc::address_invalid,
                    where.whole + ": an address in numbers is wanted, such as 127.0.0.1:7470");
    const inet_endpoint& own = found.endpoints.front();
    fd_ = ::socket(own.address.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) throw error(errc::no_resources, std::string("socket: ") + std::strerror(errno));
    if (::bind(fd_, own.get(), own.bytes) != 0) {
        const int why = errno;
        ::close(fd_);
        throw error(why == EADDRINUSE ? errc::address_in_use : errc::address_invalid,
                    where.whole + ": " + std::strerror(why));
    }
    on_.add_source(*this);
}
RDMACORO_COLD std::optional<inet_endpoint> udp_socket::in_numbers(const inet_address& address) {
    const inet_resolved found = inet_resolved::ask(address, AI_NUMERICHOST);
    if (found.endpoints.empty()) return {};
    return found.endpoints.front();
}
RDMACORO_COLD udp_socket::~udp_socket() {
    unlink();
    ::close(fd_);
}

RDMACORO_COLD bool udp_socket::send(std::span<const std::byte> bytes, const inet_endpoint& to) noexcept {
    return ::sendto(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL, to.get(), to.bytes) >= 0;
}

RDMACORO_DECL bool udp_socket::poll() noexcept {
    if (++polls_ < polls_between_looks && !look_now_ && on_.coarse_now() - looked_ < most_between_looks)
        return false;
    polls_ = 0;
    looked_ = on_.coarse_now();
    look_now_ = armed_;
    std::array<std::byte, most_bytes> room;
    for (int n = 0; n < most_at_once; ++n) {
        inet_endpoint from;
        from.bytes = sizeof from.address;
        const ssize_t got =
            ::recvfrom(fd_, room.data(), room.size(), MSG_DONTWAIT | MSG_TRUNC, from.get(), &from.bytes);
        if (got < 0) return n != 0;
        if (static_cast<std::size_t>(got) <= room.size())
            arrived_(self_, std::span<const std::byte>(room).first(static_cast<std::size_t>(got)), from);
    }
    look_now_ = true;  // there may be more
    return true;
}
RDMACORO_DECL int udp_socket::wake_fd() noexcept { return fd_; }
RDMACORO_DECL void udp_socket::arm() noexcept { armed_ = look_now_ = true; }
RDMACORO_DECL void udp_socket::disarm() noexcept {
    armed_ = false;
    look_now_ = true;
}

}  // namespace rdmacoro::detail
