// Opening a connection: socket options, the greeting both ways, and the limit on how long that may take.
#pragma once

#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/transport/tcp/address.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>

#include <cerrno>
#include <cstring>
#include <string_view>

#include <netinet/tcp.h>
#include <sys/random.h>

namespace rdmacoro::detail {

/// What every connected socket is told. None of it is required, so failures are ignored.
inline void set_tcp_options(int fd, const tcp_options& options) noexcept {
    const auto set = [fd](int level, int name, int value) noexcept {
        ::setsockopt(fd, level, name, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    // A host that went without a word is noticed by probes when idle and by missing acknowledgements otherwise.
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(options.peer_timeout);
    const auto milliseconds =
        static_cast<int>(std::min<std::int64_t>(std::max<std::int64_t>(limit.count(), 1000), 1 << 30));
    constexpr int probes = 4;
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, milliseconds / 2000));
    set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, milliseconds / 2000 / probes));
    set(IPPROTO_TCP, TCP_KEEPCNT, probes);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds);

    // bbr paces what it sends by what it measures; within one host that halves the rate for nothing.
    char control[16] = {};
    socklen_t bytes = sizeof control - 1;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &bytes) == 0 &&
        std::string_view(control) == "bbr" && inet_endpoint::local(fd).same_host(inet_endpoint::peer(fd))) {
        constexpr std::string_view reno = "reno";
        ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno.data(), static_cast<socklen_t>(reno.size()));
    }
}

inline std::string tcp_core::peer_name() const {
    return fd_ >= 0 ? inet_endpoint::peer(fd_).url("tcp") : std::string("a closed connection");
}

/// Greets on a connected socket, after connecting it if need be, and calls `ended` once: with `errc::ok`, or with the
/// reason, after which the socket is gone. Not called once it is dropped. Either side speaks first.
class tcp_handshake : public tcp_watcher, private timer_node {
public:
    /// `system` is the number of a failed system call, or 0.
    using function = void (*)(tcp_handshake&, errc outcome, int system) noexcept;

    tcp_handshake() noexcept = default;
    tcp_handshake(const tcp_handshake&) = delete;
    tcp_handshake& operator=(const tcp_handshake&) = delete;
    ~tcp_handshake() { drop(); }

    /// Takes over the descriptor.
    void accept(tcp_engine& engine, int fd, function ended) {
        begin(engine, fd, ended);
        set_tcp_options(fd, engine.options());
        core_->start_greeting(own_);
    }

    /// Takes over the descriptor.
    void connect(tcp_engine& engine, int fd, const inet_endpoint& to, function ended) {
        begin(engine, fd, ended);
        core_->start_connect(to.get(), to.bytes);
    }

    /// Gives the socket up.
    void drop() noexcept {
        if (core_ == nullptr) return;
        core_->engine().owner().remove_timer(*this);
        std::exchange(core_, nullptr)->abandon();
    }

    /// The socket, after `ok`.
    [[nodiscard]] tcp_core& take() noexcept { return *std::exchange(core_, nullptr); }

    /// What the other side said its version is, after `version_mismatch`.
    [[nodiscard]] std::uint32_t peer_version() const noexcept { return peer_version_; }

    void progress(tcp_core& core) noexcept override {
        if (core.now() == tcp_core::phase::opening) {
            const int outcome = core.take_outcome();
            if (outcome == tcp_core::no_outcome) return;
            if (outcome != 0) return fail(errc::connection_refused, -outcome);
            set_tcp_options(core.fd(), core.engine().options());
            core.start_greeting(own_);
            return;
        }
        judge(core);
    }

private:
    void begin(tcp_engine& engine, int fd, function ended) {
        ended_ = ended;
        if (::getrandom(&own_.nonce, sizeof own_.nonce, 0) != sizeof own_.nonce)
            own_.nonce = reinterpret_cast<std::uint64_t>(this);
        core_ = &engine.add_socket(fd);
        core_->set_watcher(this);
        deadline = engine.owner().now() + engine.options().handshake_timeout;
        expired = [](timer_node& self) noexcept {
            static_cast<tcp_handshake&>(self).fail(errc::timed_out, 0);
        };
        engine.owner().add_timer(*this);
    }

    void judge(tcp_core& core) noexcept {
        const std::size_t have = core.greeted();
        if (!tcp_greeting::could_be(core.greeting(), have)) return fail(errc::protocol_violation, 0);
        const tcp_greeting said = tcp_greeting::load(core.greeting());
        if (have >= tcp_greeting::deciding_bytes && said.version != own_.version) {
            peer_version_ = said.version;
            return fail(errc::version_mismatch, 0);
        }
        if (have < tcp_greeting::wire_bytes) {
            if (core.ended()) fail(have == 0 ? errc::peer_lost : errc::protocol_violation, 0);
            return;
        }
        if (said.most_message < own_.most_message) return fail(errc::protocol_violation, 0);
        if (said.nonce == own_.nonce)
            return fail(errc::connection_refused, 0);  // the system connected us to ourselves
        core.engine().owner().remove_timer(*this);
        core.set_watcher(nullptr);
        core.become_ready();
        ended_(*this, errc::ok, 0);
    }

    void fail(errc reason, int system) noexcept {
        drop();
        ended_(*this, reason, system);
    }

    tcp_core* core_ = nullptr;
    function ended_ = nullptr;
    tcp_greeting own_;
    std::uint32_t peer_version_ = 0;
};

}  // namespace rdmacoro::detail
