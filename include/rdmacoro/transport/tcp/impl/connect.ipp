// Connecting over tcp, and its errors.
#pragma once

#include <rdmacoro/transport/detail/first_to_connect.hpp>
#include <rdmacoro/transport/tcp/connect.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>

#include <cerrno>
#include <exception>
#include <optional>
#include <string>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail {

inline constexpr const char* not_greeted = "the peer closed the connection before it greeted: too many that "
                                           "have said nothing yet are connected to it, "
                                           "or it has ended";

RDMACORO_DECL tcp_connect::~tcp_connect() {
    if (attempt_.session != nullptr) attempt_.session->abandon();
}

RDMACORO_DECL void tcp_connect::start() noexcept {
    const int fd = ::socket(to_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) return end(errc::no_resources, errno);
    try {
        handshake_.self = this;
        handshake_.connect(engine_, fd, to_, [](tcp_handshake& handshake, errc outcome, int system) noexcept {
            auto& self = *static_cast<embedded&>(handshake).self;
            if (outcome == errc::ok) self.attempt_.session = &handshake.take();
            self.attempt_.peer_version = handshake.peer_version();
            self.end(outcome, system);
        });
    } catch (const std::exception&) {
        handshake_.drop();
        end(errc::no_resources, ENOMEM);
    }
}

RDMACORO_DECL void tcp_connect::cancel() noexcept {
    handshake_.drop();
    end(errc::canceled, 0);
}

RDMACORO_DECL result<tcp_attempt> tcp_connect::outcome() noexcept {
    if (attempt_.outcome == errc::canceled) return errc::canceled;
    return std::exchange(attempt_, {});
}

RDMACORO_DECL void tcp_connect::end(errc outcome, int system) noexcept {
    attempt_.outcome = outcome;
    attempt_.system = system;
    complete();
}

RDMACORO_DECL void throw_connect_error(const inet_address& address, const inet_endpoint& endpoint,
                                       const tcp_attempt& attempt) {
    const std::string where =
        "tcp: connect to " + address.whole +
        (endpoint.text() == address.host + ":" + address.port ? "" : " (" + endpoint.text() + ")") + ": ";
    const std::string system =
        attempt.system != 0 ? std::system_category().message(attempt.system) : std::string();
    switch (attempt.outcome) {
        case errc::connection_refused:
            switch (attempt.system) {
                case 0:
                case ECONNREFUSED:
                    throw error(errc::connection_refused,
                                where + "start the listener first, or check host and port");
                case ETIMEDOUT:
                    throw error(errc::timed_out,
                                where + "no host answers; check the address and the firewall");
                case EACCES:
                case EPERM:
                    throw error(errc::permission_denied,
                                where + "the system forbids it; check the firewall's rules");
                case ECONNRESET:  // it accepted and died at once
                case ECONNABORTED:
                case EPIPE: throw error(errc::peer_lost, where + not_greeted);
                case EINVAL:
                case EADDRNOTAVAIL:
                case EAFNOSUPPORT: throw error(errc::address_invalid, where + system);
                default:
                    throw error(std::error_code(attempt.system, std::system_category()),
                                where + "check route and interface");
            }
        case errc::version_mismatch:
            throw error(errc::version_mismatch,
                        where + "the peer speaks version " + std::to_string(attempt.peer_version) +
                            " of rdmacoro-tcp, this program version " + std::to_string(tcp_version) +
                            "; use one release of rdmacoro on both sides");
        case errc::protocol_violation:
            throw error(errc::protocol_violation,
                        where + "who listens there does not speak rdmacoro-tcp; check the port");
        case errc::timed_out:
            throw error(errc::timed_out, where + "no greeting in time; check that the listener still runs");
        case errc::peer_lost: throw error(errc::peer_lost, where + not_greeted);
        case errc::no_resources:
            if (attempt.system == EAFNOSUPPORT) throw error(errc::address_invalid, where + system);
            throw error(errc::no_resources, where + system + "; see ulimit -n and the memory limit");
        default: throw error(attempt.outcome, where);
    }
}

/// An attempt that has ended.
struct tcp_tried {
    inet_endpoint to;
    tcp_attempt how;
    std::optional<tcp_connection> made;

    [[nodiscard]] bool connected() const noexcept { return made.has_value(); }
};

RDMACORO_DECL task<tcp_tried> attempt_tcp(tcp_engine& engine, const inet_endpoint& to) {
    tcp_connect one(engine, to);
    tcp_tried tried;
    tried.to = to;
    tried.how = co_await one;
    if (tried.how.session != nullptr) tried.made.emplace(*tried.how.session);
    co_return tried;
}

/// For `first_to_connect`.
struct tcp_attempts {
    tcp_engine* engine;
    task<tcp_tried> operator()(const inet_endpoint& to) const { return attempt_tcp(*engine, to); }
};

RDMACORO_DECL task<tcp_connection> connect_tcp(tcp_engine& engine, inet_address address) {
    engine.enable();
    inet_resolve resolve(address, 0);
    const inet_resolved resolved = co_await resolve;
    if (resolved.none()) resolved.throw_none("tcp", address);
    const tcp_attempts attempts{&engine};
    tcp_tried tried = co_await first_to_connect<tcp_tried>(resolved.endpoints, attempts);
    if (tried.made) co_return std::move(*tried.made);
    throw_connect_error(address, tried.to, tried.how);
}

}  // namespace rdmacoro::detail
