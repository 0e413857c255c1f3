// tcp_listener: accepts connections and greets on all of them at a time.
#pragma once

#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/tcp/connect.hpp>

#include <memory>
#include <string>

namespace rdmacoro {

namespace detail {

/// The listening socket and all that came in by it and was not taken yet. A socket that greets wrongly, or not at all, is
/// dropped and troubles nobody else.
class tcp_listen_state final : public tcp_watcher, private timer_node {
public:
    tcp_listen_state(tcp_engine& engine, int fd) : engine_(engine), core_(&engine.add_socket(fd)) {
        address_ = inet_endpoint::local(fd);
        core_->set_watcher(this);
        core_->start_accept();
        expired = [](timer_node& self) noexcept {
            static_cast<tcp_listen_state&>(self).core_->start_accept();
        };
    }
    tcp_listen_state(const tcp_listen_state&) = delete;
    tcp_listen_state& operator=(const tcp_listen_state&) = delete;
    inline ~tcp_listen_state();

    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    [[nodiscard]] scheduler& owner() const noexcept { return engine_.owner(); }

    /// A greeted socket, or nullptr.
    [[nodiscard]] tcp_core* take() noexcept {
        guest* first = ready_.pop_front();
        if (first == nullptr) return nullptr;
        tcp_core& core = first->take();
        forget(*first);
        return &core;
    }

    /// Somebody waits for the next one.
    void wait(accept_waiter<tcp_core>& who) noexcept { waiters_.push_back(who); }

    void progress(tcp_core& core) noexcept override {
        const int fd = core.take_outcome();
        if (fd == tcp_core::no_outcome) return;
        if (fd >= 0) {
            greet(fd);
        } else if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS) {
            // Other connections must end first; until then the system keeps those that wait.
            deadline = engine_.owner().now() + std::chrono::milliseconds(50);
            engine_.owner().add_timer(*this);
            return;
        }
        accept_more();
    }

private:
    struct guest final : tcp_handshake, list_node<guest> {
        tcp_listen_state* host = nullptr;
    };

    void greet(int fd) noexcept {
        auto* made = new (std::nothrow) guest;
        if (made == nullptr) {
            ::close(fd);
            return;
        }
        made->host = this;
        guests_.push_back(*made);
        ++waiting_;
        try {
            made->accept(engine_, fd, [](tcp_handshake& handshake, errc outcome, int) noexcept {
                auto& who = static_cast<guest&>(handshake);
                who.host->greeted(who, outcome);
            });
        } catch (const std::exception&) {
            forget(*made);
        }
    }

    void greeted(guest& who, errc outcome) noexcept {
        if (outcome != errc::ok) {
            forget(who);
        } else if (auto* first = waiters_.pop_front(); first != nullptr) {
            tcp_core& core = who.take();
            forget(who);
            first->arrived(&core);
        } else {
            static_cast<list_node<guest>&>(who).unlink();
            ready_.push_back(who);
        }
    }

    void forget(guest& who) noexcept {
        static_cast<list_node<guest>&>(who).unlink();
        delete &who;
        --waiting_;
        accept_more();
    }

    void accept_more() noexcept {
        if (!core_->in_kernel() && !timer_node::queued() && waiting_ < engine_.options().most_waiting)
            core_->start_accept();
    }

    tcp_engine& engine_;
    tcp_core* core_;
    inet_endpoint address_;
    unsigned waiting_ = 0;
    intrusive_list<guest> guests_;
    intrusive_list<guest> ready_;
    accept_waiters<tcp_core> waiters_;
};

inline tcp_listen_state::~tcp_listen_state() {
    engine_.owner().remove_timer(*this);
    std::exchange(core_, nullptr)->abandon();
    while (guest* who = guests_.pop_front()) delete who;
    while (guest* who = ready_.pop_front()) delete who;
    while (auto* who = waiters_.pop_front()) who->arrived(nullptr);
}

template <class = void>
task<tcp_connection> accept_tcp(tcp_listen_state& state) {
    accept_operation<tcp_listen_state, tcp_core> one(state);
    tcp_core* core = co_await one;
    co_return tcp_connection(*core);
}

/// Opens a listening socket. Throws an error whose text names the address.
[[nodiscard]] inline int open_tcp_listener(const inet_address& address, const inet_endpoint& at,
                                           unsigned queue) {
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
    if (::bind(fd, at.get(), at.bytes) != 0 || ::listen(fd, static_cast<int>(queue)) != 0) {
        const int why = errno;
        ::close(fd);
        errno = why;
        refuse("bind and listen");
    }
    return fd;
}

}  // namespace detail

/// A listening socket of one domain. Greets by itself while the scheduler runs; `accept` gives out who greeted well.
/// Destroying it closes it, drops whom nobody has taken, and ends a pending `accept` with `errc::closed`.
class tcp_listener {
public:
    tcp_listener() noexcept = default;
    explicit tcp_listener(std::unique_ptr<detail::tcp_listen_state> state) noexcept
        : state_(std::move(state)) {}

    /// Completes when a client has connected and greeted. Several may wait; they are served in order. Clients that do not
    /// speak the protocol are dropped unseen. Ends with `errc::canceled` when stopped; a client that comes then waits for
    /// the next call.
    [[nodiscard]] task<tcp_connection> accept() { return detail::accept_tcp(*state_); }

    /// What it listens on, with the real port: "127.0.0.1:7471".
    [[nodiscard]] std::string address() const { return state_->address().url("tcp"); }

private:
    std::unique_ptr<detail::tcp_listen_state> state_;
};

namespace detail {

template <class = void>
task<tcp_listener> listen_tcp(tcp_engine& engine, inet_address address) {
    engine.enable();
    inet_resolve resolve(address, AI_PASSIVE);
    const inet_resolved resolved = co_await resolve;
    if (resolved.failure != 0 || resolved.endpoints.empty()) throw_resolve_error(address, resolved.failure);
    const int fd = open_tcp_listener(address, resolved.endpoints.front(), engine.options().most_waiting);
    co_return tcp_listener(std::make_unique<tcp_listen_state>(engine, fd));
}

}  // namespace detail
}  // namespace rdmacoro
