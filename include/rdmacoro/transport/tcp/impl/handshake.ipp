// Opening a tcp connection: options of the socket and the greeting.
#pragma once

#include <rdmacoro/transport/tcp/engine.hpp>
#include <rdmacoro/transport/tcp/handshake.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

namespace rdmacoro::detail {

RDMACORO_COLD void set_tcp_options(int fd, const tcp_options& options) noexcept {
    const auto set = [fd](int level, int name, int value) noexcept {
        ::setsockopt(fd, level, name, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    // A host that vanished is noticed by probes when idle, and by missing acknowledgements otherwise: tcp_liveness.
    set_keepalive(fd, options.peer_timeout);

    // bbr paces sends by its measurements; within one host that halves the rate for nothing.
    char control[16] = {};
    socklen_t bytes = sizeof control - 1;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &bytes) == 0 &&
        std::string_view(control) == "bbr" && inet_endpoint::local(fd).same_host(inet_endpoint::peer(fd))) {
        constexpr std::string_view reno = "reno";
        ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno.data(), static_cast<socklen_t>(reno.size()));
    }
}

RDMACORO_COLD void tcp_handshake::accept(tcp_engine& engine, int fd, function ended) {
    begin(engine, fd, ended);
    set_tcp_options(fd, engine.options());
    session_->start_greeting(own_);
}

RDMACORO_COLD void tcp_handshake::connect(tcp_engine& engine, int fd, const inet_endpoint& to,
                                          function ended) {
    begin(engine, fd, ended);
    session_->start_connect(to.get(), to.bytes);
}

RDMACORO_COLD void tcp_handshake::drop() noexcept {
    if (session_ == nullptr) return;
    session_->engine().owner().remove_timer(*this);
    std::exchange(session_, nullptr)->abandon();
}

RDMACORO_COLD void tcp_handshake::progress(tcp_session& session) noexcept {
    if (session.now() == tcp_session::phase::opening) {
        const int outcome = session.take_outcome();
        if (outcome == tcp_session::no_outcome) return;
        if (outcome != 0) return fail(errc::connection_refused, -outcome);
        set_tcp_options(session.fd(), session.engine().options());
        session.start_greeting(own_);
        return;
    }
    judge(session);
}

RDMACORO_COLD void tcp_handshake::begin(tcp_engine& engine, int fd, function ended) {
    ended_ = ended;
    if (::getrandom(&own_.nonce, sizeof own_.nonce, 0) != sizeof own_.nonce)
        own_.nonce = reinterpret_cast<std::uint64_t>(this);
    session_ = &engine.add_socket(fd);
    session_->set_watcher(this);
    deadline = deadline_after(engine.owner().now(), engine.options().handshake_timeout);
    expired = [](timer_node& self) noexcept { static_cast<tcp_handshake&>(self).fail(errc::timed_out, 0); };
    engine.owner().add_timer(*this);
}

RDMACORO_COLD void tcp_handshake::judge(tcp_session& session) noexcept {
    const std::size_t have = session.greeted();
    if (!tcp_greeting::could_be(session.greeting(), have)) return fail(errc::protocol_violation, 0);
    const tcp_greeting peer = tcp_greeting::load(session.greeting());
    if (have >= tcp_greeting::deciding_bytes && peer.version != own_.version) {
        peer_version_ = peer.version;
        return fail(errc::version_mismatch, 0);
    }
    if (have < tcp_greeting::wire_bytes) {
        if (session.ended()) fail(have == 0 ? errc::peer_lost : errc::protocol_violation, 0);
        return;
    }
    if (peer.most_message < own_.most_message) return fail(errc::protocol_violation, 0);
    if (peer.nonce == own_.nonce) {
        // Or the listener sends back what it gets.
        const bool to_itself = inet_endpoint::connected_to_itself(session.fd());
        return fail(to_itself ? errc::connection_refused : errc::protocol_violation, 0);
    }
    session.engine().owner().remove_timer(*this);
    session.set_watcher(nullptr);
    session.become_ready();
    ended_(*this, errc::ok, 0);
}

RDMACORO_COLD void tcp_handshake::fail(errc reason, int system) noexcept {
    drop();
    ended_(*this, reason, system);
}

}  // namespace rdmacoro::detail
