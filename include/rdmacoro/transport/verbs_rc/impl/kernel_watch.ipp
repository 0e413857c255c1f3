// Bodies of kernel_watch.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/kernel_watch.hpp>

#include <cerrno>
#include <cstdint>
#include <utility>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD kernel_watch::kernel_watch(polled_watcher& watching, void* owner, function changed) noexcept
    : watching_(watching), owner_(owner), changed_(changed) {
    fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<kernel_watch&>(self).read();
    };
}

RDMACORO_COLD kernel_watch::~kernel_watch() {
    watching_.unwatch(*this);
    if (socket_ >= 0) ::close(socket_);
}

RDMACORO_COLD bool kernel_watch::open(kernel_report what) noexcept {
    const bool devices = what == kernel_report::devices;
    socket_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
                       devices ? NETLINK_KOBJECT_UEVENT : NETLINK_ROUTE);
    if (socket_ < 0) return false;
    constexpr std::uint32_t of_the_kernel = 1;  // group 2 is the device manager's
    sockaddr_nl groups{};
    groups.nl_family = AF_NETLINK;
    groups.nl_groups = devices ? of_the_kernel : RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&groups), sizeof groups) == 0 &&
        watching_.watch(*this, socket_, EPOLLIN))
        return true;
    const int why = errno;
    ::close(std::exchange(socket_, -1));
    errno = why;
    return false;
}

RDMACORO_COLD void kernel_watch::read() noexcept {
    char report[4096];
    while (::recv(socket_, report, sizeof report, 0) >= 0 || errno == ENOBUFS || errno == EINTR) {}
    changed_(owner_);
}

}  // namespace rdmacoro::detail::verbs
