// Bodies of exchange_listener.hpp.
#pragma once

#include <rdmacoro/transport/detail/connect_info_exchange.hpp>
#include <rdmacoro/transport/detail/exchange_listener.hpp>

#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD exchange_listener::exchange_listener(scheduler& by, polled_watcher& watching, void* owner,
                                                   function came) noexcept
    : watching_(watching),
      owner_(owner),
      came_(came),
      again_(by, this, [](void* self) noexcept { static_cast<exchange_listener*>(self)->try_again(); }) {
    fd_handler::ready = [](fd_handler& handler, std::uint32_t) noexcept {
        static_cast<exchange_listener&>(handler).accept();
    };
}

RDMACORO_COLD void exchange_listener::accept() noexcept {
    const int why = accept_exchange(socket_, [this](int fd) noexcept { came_(owner_, fd); });
    if (why != EMFILE && why != ENFILE && why != ENOMEM && why != ENOBUFS) return;
    // The connection stays in the kernel's queue and the socket readable: watched, it would cost each turn a call in vain.
    watching_.unwatch(*this);
    again_.set(pause);
}

RDMACORO_COLD void exchange_listener::try_again() noexcept {
    if (!watching_.watch(*this, socket_, EPOLLIN)) return again_.set(pause);
    watching_.look_next();
}

RDMACORO_COLD exchange_listener::~exchange_listener() { close(); }

RDMACORO_COLD void exchange_listener::close() noexcept {
    again_.cancel();
    watching_.unwatch(*this);
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

RDMACORO_COLD const char* exchange_listener::listen(const inet_endpoint& at, unsigned queue) noexcept {
    if (const char* const step = listen_for_exchange(at, queue, socket_); step != nullptr) return step;
    return watching_.watch(*this, socket_, EPOLLIN) ? nullptr : "watch the socket";
}

}  // namespace rdmacoro::detail
