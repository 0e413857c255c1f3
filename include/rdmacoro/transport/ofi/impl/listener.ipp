// Bodies of listener.hpp.
#pragma once

#include <rdmacoro/transport/ofi/listener.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <unistd.h>

namespace rdmacoro::detail::fabric {

RDMACORO_COLD listen_state::listen_state(engine& of, const inet_address& address, const inet_endpoint& at)
    : engine_(of), accepted_(of), socket_(of.owner(), of.watching(), this, [](void* self, int fd) noexcept {
          static_cast<listen_state*>(self)->admit(fd);
      }) {
    if (!of.has_endpoint())
        throw error(errc::no_resources,
                    of.device().name() + ": listen on " + address.whole + ": " + broken_text(of));
    if (const char* const step = socket_.listen(at, of.options().most_waiting); step != nullptr)
        refuse(address, step, errno);
    address_ = socket_.address();
    listening::domain_broke = [](listening& self) noexcept {
        static_cast<listen_state&>(self).accepted_.end();
    };
    of.listens(*this);
}

RDMACORO_COLD void listen_state::refuse(const inet_address& address, const char* what, int why) {
    const std::string where = engine_.device().name() + ": listen on " + address.whole + ": ";
    switch (why) {
        case EADDRINUSE:
            throw error(errc::address_in_use,
                        where + "another program listens on port " + address.port +
                            "; find it with `ss -ltnp`, or listen on another port (0: any)");
        case EADDRNOTAVAIL: throw error(errc::address_invalid, where + "this is no address of this host");
        case EACCES:
            throw error(errc::permission_denied,
                        where + "ports below 1024 need the right CAP_NET_BIND_SERVICE");
        case EMFILE:
        case ENFILE:
        case ENOMEM: throw error(errc::no_resources, where + what + ": " + std::strerror(why));
        default: throw error(std::error_code(why, std::system_category()), where + what);
    }
}

RDMACORO_COLD void listen_state::admit(int fd) noexcept {
    if (!accepted_.admit([fd](session& which, opener& waiter) noexcept { which.accept(fd, waiter); },
                         host_hash(inet_endpoint::peer(fd))))
        ::close(fd);
}

RDMACORO_COLD task<ofi_connection> accept(listen_state& state) {
    engine& by = state.of();
    accept_operation<accept_queue_type, session> one(state.accepted());
    try {
        if (by.has_endpoint()) {
            session* const made = co_await one;
            co_return ofi_connection(*made);
        }
    } catch (const error& ended) {
        if (by.has_endpoint() || ended.code() != errc::closed) throw;
    }
    throw error(errc::no_resources, by.device().name() + ": accept: " + broken_text(by));
}

RDMACORO_COLD task<ofi_listener> listen(engine& by, inet_address address) {
    return listen_on_first<ofi_listener, listen_state>(by, std::move(address), by.device().name());
}

}  // namespace rdmacoro::detail::fabric
