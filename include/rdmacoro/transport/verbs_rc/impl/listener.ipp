// Bodies of listener.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/listener.hpp>

#include <cerrno>
#include <string>
#include <utility>

#include <unistd.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD listen_state::listen_state(engine& of, const inet_address& address, const inet_endpoint& at)
    : engine_(of),
      accepted_(of),
      socket_(of.owner(), of.watching(), this,
              [](void* self, int fd) noexcept { static_cast<listen_state*>(self)->admit(fd); }),
      addresses_(of.watching(), this,
                 [](void* self) noexcept { static_cast<listen_state*>(self)->addresses_changed(); }),
      gone_(of.owner(), this, [](void* self) noexcept {
          static_cast<listen_state*>(self)->accepted_.end(errc::address_invalid);
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

RDMACORO_COLD void listen_state::device_gone() noexcept {
    // Clients by TCP would be told that there is no room.
    socket_.close();
    accepted_.end();
}

RDMACORO_COLD listen_state::~listen_state() {
    static_cast<device_watcher&>(*this).unlink();
    if (id_ != nullptr) ::rdma_destroy_id(id_);
}

RDMACORO_COLD void listen_state::refuse(const inet_address& address, const char* what, int why) {
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
        follows_ = !engine_.device().has_chosen_address();
    }
    int why = 0;
    if (const char* const step = bind(at, why); step != nullptr) refuse(address, step, why);
    static_cast<void>(addresses_.open(
        kernel_report::
            addresses));  // without it, only the changes that the connection manager reports are followed
}

/// Listens on `at`, and no more where it did before. Nullptr, or the step that failed, for the reason `why`: nothing has changed.
RDMACORO_COLD const char* listen_state::bind(const inet_endpoint& at, int& why) noexcept {
    rdma_cm_id* made = nullptr;
    inet_endpoint wanted = at;
    const char* step = nullptr;
    if (::rdma_create_id(engine_.cm_channel(), &made, static_cast<cm_party*>(this), RDMA_PS_TCP) != 0) {
        step = "create an identifier";
    } else if (::rdma_bind_addr(made, wanted.get()) != 0) {
        step = "bind";
    } else if (!engine_.device().has(*made)) {
        step = "bind";
        errno = ENODEV;
    } else if (::rdma_listen(made, static_cast<int>(engine_.options().most_waiting)) != 0) {
        step = "listen";
    }
    why = step != nullptr ? errno : 0;
    if (step == nullptr) {
        std::swap(made, id_);
        address_ = endpoint_of(::rdma_get_local_addr(id_));
        set_port(address_, ntohs(::rdma_get_src_port(id_)));
    }
    if (made != nullptr) ::rdma_destroy_id(made);
    return step;
}

RDMACORO_COLD bool listen_state::address_is_there() const {
    const verbs::device& device = engine_.device();
    for (const device_address& one : device_addresses()) {
        if (one.device == device.name() && same_address(one.address, address_)) return true;
    }
    return false;
}

RDMACORO_COLD void listen_state::addresses_changed() noexcept {
    if (engine_.broken()) return;
    try {
        bool listens = address_is_there();
        if (!listens && follows_) {
            verbs::device& device = engine_.device();
            device.look_for_address(address_.address.ss_family);
            inet_endpoint at = device.address();
            set_port(at, port_of(address_));
            int why = 0;
            listens = bind(at, why) == nullptr;
        }
        if (listens) return gone_.cancel();
    } catch (const std::exception&) {}  // no memory to look: as if it were not there
    if (!gone_.queued()) gone_.set(engine_.options().handshake_timeout);
}

RDMACORO_COLD void listen_state::cm_event(const cm_news& news) noexcept {
    if (news.type == RDMA_CM_EVENT_ADDR_CHANGE) return addresses_changed();
    if (news.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
    if (accepted_.admit([&](session& which, opener& waiter) noexcept { which.accept_by_cm(news, waiter); },
                        host_hash(endpoint_of(::rdma_get_peer_addr(news.id)))))
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
    const inet_endpoint at = state.address();
    try {
        co_return co_await accept_next<verbs_connection, session>(state.accepted());
    } catch (const error& why) {
        if (!of.broken() && why.code() == errc::address_invalid)
            throw_error(errc::address_invalid,
                        "verbs: accept at " + at.url("verbs") + " by " + of.device().name() +
                            ": the device has this address no more; listen on another one");
        if (!of.broken() || why.code() != errc::closed) throw;
    }
    throw_device_gone(of, "accept");
}

RDMACORO_COLD task<verbs_listener> listen(engine& by, inet_address address) {
    return listen_on_first<verbs_listener, listen_state>(by, std::move(address), "verbs");
}

}  // namespace rdmacoro::detail::verbs
