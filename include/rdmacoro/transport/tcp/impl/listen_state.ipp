// The listening socket of tcp: accepting, greeting and the queue of greeted connections.
#pragma once

#include <rdmacoro/transport/tcp/engine.hpp>
#include <rdmacoro/transport/tcp/listen_state.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD tcp_listen_state::tcp_listen_state(tcp_engine& engine, int fd)
    : engine_(engine), session_(&engine.add_socket(fd)), most_(most_places(engine.options().most_waiting)) {
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
    accept_more();
    return &session;
}

RDMACORO_COLD void tcp_listen_state::progress(tcp_session& session) noexcept {
    const int fd = session.take_outcome();
    if (fd == tcp_session::no_outcome) return;
    if (fd >= 0) {
        newcomer_ = fd;
        newcomer_from_ = host_hash(inet_endpoint::peer(fd));
        return accept_more();
    }
    switch (-fd) {
        // The client's own: it went away while it waited, or its network did.
        case ECONNABORTED:
        case EPROTO:
        case ENETDOWN:
        case ENOPROTOOPT:
        case EHOSTDOWN:
        case ENONET:
        case EHOSTUNREACH:
        case ENETUNREACH:
        case EINTR:
        case EAGAIN: return accept_more();
        case EINVAL:
        case EBADF:
        case ENOTSOCK: dead_ = true; return end_waiters();
        case EMFILE:
        case ENFILE:
        case ENOMEM:
        case ENOBUFS: {
            // Other connections must end first; until then the waiting ones stay in the system's queue.
            incoming* const next = hosts_.next_to_drop(accepting_);
            if (next != nullptr && engine_.owner().now() >= after(*next, grace_part)) {
                drop(*next);
                return accept_more();
            }
            break;
        }
        default: break;
    }
    deadline = engine_.owner().now() + std::chrono::milliseconds(50);
    engine_.owner().add_timer(*this);
}

RDMACORO_COLD void tcp_listen_state::end_waiters() noexcept {
    while (auto* waiter = waiters_.pop_front()) waiter->arrived(nullptr);
}

RDMACORO_COLD void tcp_listen_state::greet(int fd, std::uint8_t from) noexcept {
    auto* made = new (std::nothrow) incoming;
    if (made == nullptr) {
        ::close(fd);
        return;
    }
    made->host = this;
    made->since = engine_.owner().now();
    made->from = from;
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
        accept_more();
        return first->arrived(&session);
    } else {
        static_cast<list_node<incoming>&>(client).unlink();
        ready_.push_back(client);
    }
    accept_more();
}

RDMACORO_COLD void tcp_listen_state::forget(incoming& client) noexcept {
    static_cast<list_node<incoming>&>(client).unlink();
    delete &client;
    --waiting_;
}

RDMACORO_COLD scheduler& tcp_listen_state::owner() const noexcept { return engine_.owner(); }

RDMACORO_COLD void tcp_listen_state::accept_more() noexcept {
    engine_.owner().remove_timer(*this);
    if (newcomer_ >= 0 && !place_newcomer()) return;
    // Where all have greeted, only `take` makes room: the system keeps the others.
    if (!dead_ && !session_->awaits_outcome() && (waiting_ < most_ || !accepting_.empty()))
        session_->start_accept();
}

RDMACORO_COLD bool tcp_listen_state::place_newcomer() noexcept {
    const auto begin = [&] {
        greet(std::exchange(newcomer_, -1), newcomer_from_);
        return true;
    };
    if (waiting_ < most_) return begin();
    incoming* const next = hosts_.next_to_drop(accepting_);
    if (next == nullptr) return false;
    const time_point now = engine_.owner().now();
    const time_point grace_ends = after(*next, grace_part);
    if (now >= grace_ends || hosts_.holds_more(next->from, newcomer_from_)) {
        drop(*next);
        return begin();
    }
    deadline = grace_ends;
    if (hosts_.crowds(newcomer_from_, most_)) {
        if (now >= after(*next, flood_part) && pressed()) {
            // A reset, of which the system keeps nothing.
            const linger none{1, 0};
            ::setsockopt(newcomer_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
            ::close(std::exchange(newcomer_, -1));
            return true;
        }
        deadline = std::min(grace_ends, deadline_after(now, engine_.options().handshake_timeout / look_part));
    }
    engine_.owner().add_timer(*this);
    return false;
}

RDMACORO_COLD bool tcp_listen_state::pressed() const noexcept {
    // Of a listening socket these are the connections in its queue, and the most that it takes.
    tcp_info queue{};
    socklen_t bytes = sizeof queue;
    if (::getsockopt(session_->fd(), IPPROTO_TCP, TCP_INFO, &queue, &bytes) != 0) return false;
    return queue.tcpi_unacked > std::min<std::size_t>(queue.tcpi_sacked, most_) / 2;
}

RDMACORO_COLD void tcp_listen_state::drop(incoming& silent) noexcept {
    hosts_.release(silent.from);
    forget(silent);
}

RDMACORO_COLD time_point tcp_listen_state::after(const incoming& client, int part) const noexcept {
    return deadline_after(client.since, engine_.options().handshake_timeout / part);
}

RDMACORO_COLD tcp_listen_state::~tcp_listen_state() {
    engine_.owner().remove_timer(*this);
    std::exchange(session_, nullptr)->abandon();
    if (newcomer_ >= 0) ::close(newcomer_);
    while (incoming* client = accepting_.pop_front()) delete client;
    while (incoming* client = ready_.pop_front()) delete client;
    end_waiters();
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
