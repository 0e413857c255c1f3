// Bodies of exchange_listener.hpp.
#pragma once

#include <rdmacoro/transport/detail/connect_info_exchange.hpp>
#include <rdmacoro/transport/detail/exchange_listener.hpp>

#include <sys/epoll.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD exchange_listener::exchange_listener(polled_watcher& watching, void* owner,
                                                   function came) noexcept
    : watching_(watching), owner_(owner), came_(came) {
    fd_handler::ready = [](fd_handler& handler, std::uint32_t) noexcept {
        auto& self = static_cast<exchange_listener&>(handler);
        accept_exchange(self.socket_, [&self](int fd) noexcept { self.came_(self.owner_, fd); });
    };
}

RDMACORO_COLD exchange_listener::~exchange_listener() {
    watching_.unwatch(*this);
    if (socket_ >= 0) ::close(socket_);
}

RDMACORO_COLD const char* exchange_listener::listen(const inet_endpoint& at, unsigned queue) noexcept {
    if (const char* const step = listen_for_exchange(at, queue, socket_); step != nullptr) return step;
    return watching_.watch(*this, socket_, EPOLLIN) ? nullptr : "watch the socket";
}

}  // namespace rdmacoro::detail
