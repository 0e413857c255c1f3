// Bodies of listener.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/listener.hpp>

#include <cerrno>
#include <string>
#include <utility>

#include <unistd.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD listen_state::listen_state(engine& of, const inet_address& address, const inet_endpoint& at)
    : engine_(of), accepted_(of), socket_(of.owner(), of.watching(), this, [](void* self, int fd) noexcept {
          static_cast<listen_state*>(self)->admit(fd);
      }) {
    if (of.broken()) throw_device_gone(of, "listen on " + address.whole);
    if (of.by_cm()) {
        listen_by_cm(address, at);
    } else {
        const char* const step = socket_.listen(at, of.options().most_waiting);
        if (step != nullptr) refuse(address, step, errno);
        address_ = socket_.address();
    }
    engine_.watch_device(*this);
}

RDMACORO_COLD void listen_state::device_gone() noexcept { accepted_.end(); }

RDMACORO_COLD listen_state::~listen_state() {
    static_cast<device_watcher&>(*this).unlink();
    if (id_ != nullptr) ::rdma_destroy_id(id_);
}

RDMACORO_COLD void listen_state::refuse(const inet_address& address, const char* what, int why) {
    if (id_ != nullptr) ::rdma_destroy_id(std::exchange(id_, nullptr));
    const std::string where = "verbs: listen on " + address.whole + " by " + engine_.device().name() + ": ";
    switch (why) {
        case EADDRINUSE:
            throw error(errc::address_in_use, where + "another program listens on port " + address.port +
                                                  "; find it with `rdma resource show cm_id`, or listen "
                                                  "on another port (0: any)");
        case EADDRNOTAVAIL:
        case ENODEV:
            throw error(errc::address_invalid,
                        where + "this is not an address of the device; devices of this host: " +
                            devices_text(device_addresses()));
        case EACCES:
            throw error(errc::permission_denied,
                        where + "ports below 1024 need the right CAP_NET_BIND_SERVICE");
        default: throw_system(where + what, why);
    }
}

RDMACORO_COLD void listen_state::listen_by_cm(const inet_address& address, inet_endpoint at) {
    if (address.host.empty()) {
        const std::uint16_t port = port_of(at);
        engine_.device().look_for_address(engine_.device().address().address.ss_family);
        at = engine_.device().address();
        set_port(at, port);
    }
    if (::rdma_create_id(engine_.cm_channel(), &id_, static_cast<cm_party*>(this), RDMA_PS_TCP) != 0)
        refuse(address, "create an identifier", errno);
    if (::rdma_bind_addr(id_, at.get()) != 0) refuse(address, "bind", errno);
    if (id_->verbs == nullptr || engine_.device().name() != ::ibv_get_device_name(id_->verbs->device))
        refuse(address, "bind", ENODEV);
    if (::rdma_listen(id_, static_cast<int>(engine_.options().most_waiting)) != 0)
        refuse(address, "listen", errno);
    address_ = endpoint_of(::rdma_get_local_addr(id_));
    set_port(address_, ntohs(::rdma_get_src_port(id_)));
}

RDMACORO_COLD void listen_state::cm_event(const cm_news& news) noexcept {
    if (news.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
    if (accepted_.admit([&](session& which, opener& waiter) noexcept { which.accept_by_cm(news, waiter); }))
        return;
    const greeting::bytes own = engine_.own_greeting().store();
    static_cast<void>(::rdma_reject(news.id, own.data(), own.size()));
    ::rdma_destroy_id(news.id);
}

RDMACORO_COLD void listen_state::admit(int fd) noexcept {
    if (!accepted_.admit(
            [fd](session& which, opener& waiter) noexcept { which.accept_by_socket(fd, waiter); },
            host_hash(inet_endpoint::peer(fd))))
        ::close(fd);
}

RDMACORO_COLD task<verbs_connection> accept(listen_state& state) {
    const engine& of = state.of();  // the listener may be destroyed meanwhile, and not its domain
    try {
        co_return co_await accept_next<verbs_connection, session>(state.accepted());
    } catch (const error& why) {
        if (!of.broken() || why.code() != errc::closed) throw;
    }
    throw_device_gone(of, "accept");
}

RDMACORO_COLD task<verbs_listener> listen(engine& by, inet_address address) {
    return listen_on_first<verbs_listener, listen_state>(by, std::move(address), "verbs");
}

}  // namespace rdmacoro::detail::verbs
