// Connecting: one operation for each address of the peer, one coroutine that tries them in turn.
#pragma once

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/tcp/connection.hpp>
#include <rdmacoro/transport/tcp/handshake.hpp>

#include <string>

namespace rdmacoro::detail {

/// How one attempt to connect ended.
struct tcp_attempt {
    errc outcome = errc::ok;
    int system = 0;  // errno of the system call that failed, if one did
    std::uint32_t peer_version = 0;
    tcp_core* core = nullptr;
};

/// Connects to one address and greets. Canceling it closes the socket.
class tcp_connect final : public basic_operation<tcp_connect, tcp_attempt> {
public:
    tcp_connect(tcp_engine& engine, const inet_endpoint& to) noexcept
        : basic_operation(&engine.owner()), engine_(engine), to_(to) {}
    tcp_connect(const tcp_connect&) = delete;
    tcp_connect& operator=(const tcp_connect&) = delete;
    ~tcp_connect() {
        if (attempt_.core != nullptr) attempt_.core->abandon();
    }

    void start() noexcept {
        const int fd = ::socket(to_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
        if (fd < 0) return end(errc::no_resources, errno);
        try {
            handshake_.self = this;
            handshake_.connect(engine_, fd, to_,
                               [](tcp_handshake& handshake, errc outcome, int system) noexcept {
                                   auto& self = *static_cast<embedded&>(handshake).self;
                                   if (outcome == errc::ok) self.attempt_.core = &handshake.take();
                                   self.attempt_.peer_version = handshake.peer_version();
                                   self.end(outcome, system);
                               });
        } catch (const std::exception&) {
            handshake_.drop();
            end(errc::no_resources, ENOMEM);
        }
    }
    void cancel() noexcept {
        handshake_.drop();
        end(errc::canceled, 0);
    }
    void finish_canceled() noexcept { attempt_.outcome = errc::canceled; }

    [[nodiscard]] result<tcp_attempt> outcome() noexcept {
        if (attempt_.outcome == errc::canceled) return errc::canceled;
        return std::exchange(attempt_, {});
    }

private:
    struct embedded final : tcp_handshake {
        tcp_connect* self = nullptr;
    };

    void end(errc outcome, int system) noexcept {
        attempt_.outcome = outcome;
        attempt_.system = system;
        complete();
    }

    tcp_engine& engine_;
    inet_endpoint to_;
    tcp_attempt attempt_;
    embedded handshake_;
};

/// What went wrong, for a person: which address, and what to do about it.
[[gnu::cold, noreturn]] inline void
throw_connect_error(const inet_address& address, const inet_endpoint& endpoint, const tcp_attempt& attempt) {
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
        case errc::peer_lost:
            throw error(errc::peer_lost, where + "the peer closed the connection before it greeted");
        case errc::no_resources:
            if (attempt.system == EAFNOSUPPORT) throw error(errc::address_invalid, where + system);
            throw error(errc::no_resources, where + system + "; see ulimit -n and the memory limit");
        default: throw error(attempt.outcome, where);
    }
}

[[gnu::cold, noreturn]] inline void throw_resolve_error(const inet_address& address, int failure) {
    throw error(errc::address_invalid, "tcp: " + address.whole + ": no such host (" +
                                           ::gai_strerror(failure) +
                                           "); check the name, or write the address in numbers");
}

/// A template so that only programs that connect compile it.
template <class = void>
task<tcp_connection> connect_tcp(tcp_engine& engine, inet_address address) {
    engine.enable();
    inet_resolve resolve(address, 0);
    const inet_resolved resolved = co_await resolve;
    if (resolved.failure != 0 || resolved.endpoints.empty()) throw_resolve_error(address, resolved.failure);
    tcp_attempt attempt;
    for (const inet_endpoint& endpoint : resolved.endpoints) {
        tcp_connect one(engine, endpoint);
        attempt = co_await one;
        if (attempt.core != nullptr) co_return tcp_connection(*attempt.core);
        if (&endpoint == &resolved.endpoints.back()) throw_connect_error(address, endpoint, attempt);
    }
    throw_resolve_error(address, EAI_NONAME);
}

}  // namespace rdmacoro::detail
