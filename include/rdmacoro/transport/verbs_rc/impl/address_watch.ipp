// Bodies of address_watch.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/address_watch.hpp>

#include <cerrno>
#include <utility>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD address_watch::address_watch(polled_watcher& watching, void* owner, function changed) noexcept
    : watching_(watching), owner_(owner), changed_(changed) {
    fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<address_watch&>(self).read();
    };
}

RDMACORO_COLD address_watch::~address_watch() {
    watching_.unwatch(*this);
    if (socket_ >= 0) ::close(socket_);
}

RDMACORO_COLD bool address_watch::open() noexcept {
    socket_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (socket_ < 0) return false;
    sockaddr_nl groups{};
    groups.nl_family = AF_NETLINK;
    groups.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&groups), sizeof groups) == 0 &&
        watching_.watch(*this, socket_, EPOLLIN))
        return true;
    const int why = errno;
    ::close(std::exchange(socket_, -1));
    errno = why;
    return false;
}

/// The reports are not looked into, and some may be lost (ENOBUFS): the owner looks at the addresses.
RDMACORO_COLD void address_watch::read() noexcept {
    char report[4096];
    while (::recv(socket_, report, sizeof report, 0) >= 0 || errno == ENOBUFS || errno == EINTR) {}
    changed_(owner_);
}

}  // namespace rdmacoro::detail::verbs
