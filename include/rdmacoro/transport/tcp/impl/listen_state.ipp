// The listening socket of tcp: accepting, greeting and the queue of greeted connections.
#pragma once

#include <rdmacoro/transport/tcp/engine.hpp>
#include <rdmacoro/transport/tcp/listen_state.hpp>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD tcp_listen_state::tcp_listen_state(tcp_engine& engine, int fd)
    : engine_(engine), session_(&engine.add_socket(fd)) {
    address_ = inet_endpoint::local(fd);
    session_->set_watcher(this);
    session_->start_accept();
    expired = [](timer_node& self) noexcept { static_cast<tcp_listen_state&>(self).accept_more(); };
}

RDMACORO_COLD tcp_session* tcp_listen_state::take() noexcept {
    incoming* first = ready_.pop_front();
    if (first == nullptr) return nullptr;
    tcp_session& session = first->take();
    forget(*first);
    return &session;
}

RDMACORO_COLD void tcp_listen_state::progress(tcp_session& session) noexcept {
    const int fd = session.take_outcome();
    if (fd == tcp_session::no_outcome) return;
    if (fd >= 0) {
        greet(fd);
    } else if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS) {
        if (drop_stranger()) return;
        // Other connections must end first; until then the waiting ones stay in the system's queue.
        deadline = engine_.owner().now() + std::chrono::milliseconds(50);
        engine_.owner().add_timer(*this);
        return;
    }
    accept_more();
}

RDMACORO_COLD void tcp_listen_state::greet(int fd) noexcept {
    auto* made = new (std::nothrow) incoming;
    if (made == nullptr) {
        ::close(fd);
        return;
    }
    made->host = this;
    made->since = engine_.owner().now();
    made->from = host_hash(inet_endpoint::peer(fd));
    hosts_.take(made->from);
    accepting_.push_back(*made);
    ++waiting_;
    try {
        made->accept(engine_, fd, [](tcp_handshake& handshake, errc outcome, int) noexcept {
            auto& client = static_cast<incoming&>(handshake);
            client.host->greeted(client, outcome);
        });
    } catch (const std::exception&) {
        hosts_.release(made->from);
        forget(*made);
    }
}

RDMACORO_COLD void tcp_listen_state::greeted(incoming& client, errc outcome) noexcept {
    hosts_.release(client.from);
    if (outcome != errc::ok) {
        forget(client);
    } else if (auto* first = waiters_.pop_front(); first != nullptr) {
        tcp_session& session = client.take();
        forget(client);
        first->arrived(&session);
    } else {
        static_cast<list_node<incoming>&>(client).unlink();
        ready_.push_back(client);
    }
}

RDMACORO_COLD void tcp_listen_state::forget(incoming& client) noexcept {
    static_cast<list_node<incoming>&>(client).unlink();
    delete &client;
    --waiting_;
    accept_more();
}

RDMACORO_COLD scheduler& tcp_listen_state::owner() const noexcept { return engine_.owner(); }

RDMACORO_COLD void tcp_listen_state::accept_more() noexcept {
    if (session_->awaits_outcome() || timer_node::queued()) return;
    if (waiting_ < engine_.options().most_waiting) return session_->start_accept();
    if (drop_stranger() || accepting_.empty()) return;
    deadline = grace_ends(*hosts_.next_to_drop(accepting_));
    engine_.owner().add_timer(*this);
}

RDMACORO_COLD bool tcp_listen_state::drop_stranger() noexcept {
    incoming* const silent = hosts_.next_to_drop(accepting_);
    if (silent == nullptr || engine_.owner().now() < grace_ends(*silent)) return false;
    hosts_.release(silent->from);
    forget(*silent);
    return true;
}

RDMACORO_COLD time_point tcp_listen_state::grace_ends(const incoming& client) const noexcept {
    return deadline_after(client.since, engine_.options().handshake_timeout / grace_part);
}

RDMACORO_COLD tcp_listen_state::~tcp_listen_state() {
    engine_.owner().remove_timer(*this);
    std::exchange(session_, nullptr)->abandon();
    while (incoming* client = accepting_.pop_front()) delete client;
    while (incoming* client = ready_.pop_front()) delete client;
    while (auto* waiter = waiters_.pop_front()) waiter->arrived(nullptr);
}

RDMACORO_COLD const inet_endpoint&
tcp_listening_endpoint(const inet_address& address, const std::vector<inet_endpoint>& endpoints) noexcept {
    for (const inet_endpoint& one : endpoints) {
        if (!address.host.empty() || one.address.ss_family != AF_INET6) continue;
        inet_endpoint any_port = one;
        reinterpret_cast<sockaddr_in6&>(any_port.address).sin6_port = 0;
        const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
        const bool usable = fd >= 0 && ::bind(fd, any_port.get(), any_port.bytes) == 0;
        if (fd >= 0) ::close(fd);
        if (usable) return one;
    }
    return endpoints.front();
}

RDMACORO_COLD int open_tcp_listener(const inet_address& address, const inet_endpoint& at, unsigned queue) {
    const auto refuse = [&](const char* what) {
        const int why = errno;
        const std::string where = "tcp: listen on " + address.whole + ": ";
        switch (why) {
            case EADDRINUSE:
                throw error(errc::address_in_use,
                            where + "another program listens on port " + address.port +
                                "; find it with ss -ltnp, or listen on another port (0: any)");
            case EADDRNOTAVAIL:
                throw error(errc::address_invalid,
                            where + "no interface of this host has this address; see ip address");
            case EACCES:
                throw error(errc::permission_denied,
                            where + "ports below 1024 need the right CAP_NET_BIND_SERVICE");
            case EMFILE:
            case ENFILE: throw error(errc::no_resources, where + "no descriptor is free; see ulimit -n");
            default: throw error(std::error_code(why, std::system_category()), where + what);
        }
    };
    const int fd = ::socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) refuse("socket");
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const int off = 0;
    if (address.host.empty()) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(fd, at.get(), at.bytes) != 0 || ::listen(fd, static_cast<int>(queue)) != 0) {
        const int why = errno;
        ::close(fd);
        errno = why;
        refuse("bind and listen");
    }
    return fd;
}

}  // namespace rdmacoro::detail
