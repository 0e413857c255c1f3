// verbs_listener: accepts connections and opens all of them at a time.
#pragma once

#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/verbs_rc/connection.hpp>

#include <memory>
#include <string>

namespace rdmacoro {

namespace detail::verbs {

/// The listening identifier, or socket, and all that came in by it and was not taken yet. A peer that greets wrongly, or not
/// at all, is dropped and troubles nobody else.
class listen_state final : private cm_party, private fd_handler {
public:
    /// Throws an error whose text names the address.
    listen_state(engine& of, const inet_address& address, const inet_endpoint& at) : engine_(of) {
        if (of.by_cm()) {
            listen_by_cm(address, at);
        } else {
            listen_by_socket(address, at);
        }
    }
    listen_state(const listen_state&) = delete;
    listen_state& operator=(const listen_state&) = delete;
    inline ~listen_state();

    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    [[nodiscard]] scheduler& owner() const noexcept { return engine_.owner(); }

    /// An open connection, or nullptr.
    [[nodiscard]] core* take() noexcept {
        guest* first = ready_.pop_front();
        if (first == nullptr) return nullptr;
        core* made = std::exchange(first->which, nullptr);
        forget(*first);
        return made;
    }

    /// Somebody waits for the next one.
    void wait(accept_waiter<core>& who) noexcept { waiters_.push_back(who); }

private:
    struct guest final : opener, list_node<guest> {
        listen_state* host = nullptr;
        core* which = nullptr;
        void opened(core&, const opening_outcome& how) noexcept override { host->opened(*this, how.code); }
    };

    [[gnu::cold, noreturn]] void refuse(const inet_address& address, const char* what, int why) {
        if (id_ != nullptr) ::rdma_destroy_id(std::exchange(id_, nullptr));
        if (socket_ >= 0) ::close(std::exchange(socket_, -1));
        const std::string where =
            "verbs: listen on " + address.whole + " by " + engine_.device().name() + ": ";
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

    void listen_by_cm(const inet_address& address, inet_endpoint at) {
        if (address.host.empty()) {
            const std::uint16_t port = port_of(at);
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

    void listen_by_socket(const inet_address& address, const inet_endpoint& at) {
        socket_ = ::socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
        if (socket_ < 0) refuse(address, "open a socket", errno);
        const int on = 1;
        ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(socket_, at.get(), at.bytes) != 0) refuse(address, "bind", errno);
        if (::listen(socket_, static_cast<int>(engine_.options().most_waiting)) != 0)
            refuse(address, "listen", errno);
        fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
            static_cast<listen_state&>(self).accept_all();
        };
        if (!engine_.watch(*this, socket_, EPOLLIN)) refuse(address, "watch the socket", errno);
        address_ = inet_endpoint::local(socket_);
    }

    [[nodiscard]] guest* make_guest() noexcept {
        if (waiting_ >= engine_.options().most_waiting) return nullptr;
        auto* made = new (std::nothrow) guest;
        if (made == nullptr) return nullptr;
        made->which = engine_.make_core();
        if (made->which == nullptr) {
            delete made;
            return nullptr;
        }
        made->host = this;
        guests_.push_back(*made);
        ++waiting_;
        return made;
    }

    void cm_event(const cm_news& news) noexcept override {
        if (news.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
        if (guest* who = make_guest()) {
            who->which->accept_by_cm(news, *who);
        } else {
            const greeting::bytes said = engine_.own_greeting().store();
            static_cast<void>(::rdma_reject(news.id, said.data(), said.size()));
            ::rdma_destroy_id(news.id);
        }
    }

    void accept_all() noexcept {
        constexpr int most = 64;
        for (int n = 0; n < most; ++n) {
            const int fd = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0) return;
            if (guest* who = make_guest()) {
                who->which->accept_by_socket(fd, *who);
            } else {
                ::close(fd);
            }
        }
    }

    void opened(guest& who, errc outcome) noexcept {
        if (outcome != errc::ok) {
            who.which = nullptr;
            forget(who);
        } else if (auto* first = waiters_.pop_front(); first != nullptr) {
            core* made = std::exchange(who.which, nullptr);
            forget(who);
            first->arrived(made);
        } else {
            static_cast<list_node<guest>&>(who).unlink();
            ready_.push_back(who);
        }
    }

    void forget(guest& who) noexcept {
        static_cast<list_node<guest>&>(who).unlink();
        if (who.which != nullptr) who.which->abandon();
        delete &who;
        --waiting_;
    }

    engine& engine_;
    rdma_cm_id* id_ = nullptr;
    int socket_ = -1;
    inet_endpoint address_;
    unsigned waiting_ = 0;
    intrusive_list<guest> guests_;
    intrusive_list<guest> ready_;
    accept_waiters<core> waiters_;
};

inline listen_state::~listen_state() {
    engine_.unwatch(*this);
    if (socket_ >= 0) ::close(socket_);
    if (id_ != nullptr) ::rdma_destroy_id(id_);
    while (guest* who = guests_.front()) forget(*who);
    while (guest* who = ready_.front()) forget(*who);
    while (auto* who = waiters_.pop_front()) who->arrived(nullptr);
}

template <class = void>
task<verbs_connection> accept(listen_state& state) {
    accept_operation<listen_state, core> one(state);
    core* made = co_await one;
    co_return verbs_connection(*made);
}

}  // namespace detail::verbs

/// Listens on one address of a domain's device. Opens connections by itself while the scheduler runs; `accept` gives out
/// those that are open. Destroying it ends listening, drops whom nobody has taken, and ends a pending `accept` with
/// `errc::closed`.
class verbs_listener {
public:
    verbs_listener() noexcept = default;
    explicit verbs_listener(std::unique_ptr<detail::verbs::listen_state> state) noexcept
        : state_(std::move(state)) {}

    /// Awaitable.
    /// Completes: when a client has connected. Clients that do not speak the protocol are dropped unseen.
    /// Buffers: none.
    /// Concurrency: any number at a time; they are served in order.
    /// Errors: `errc::closed` when the listener is destroyed.
    /// Cancellation: at any time; a client that comes then waits for the next call.
    /// Example:
    ///     rdmacoro::verbs_connection made = co_await listening.accept();
    [[nodiscard]] task<verbs_connection> accept() { return detail::verbs::accept(*state_); }

    /// What it listens on, with the real port: "verbs://10.0.0.1:7471".
    [[nodiscard]] std::string address() const { return state_->address().url("verbs"); }

private:
    std::unique_ptr<detail::verbs::listen_state> state_;
};

namespace detail::verbs {

template <class = void>
task<verbs_listener> listen(engine& by, inet_address address) {
    inet_resolve resolve(address, AI_PASSIVE);
    const inet_resolved resolved = co_await resolve;
    if (resolved.failure != 0 || resolved.endpoints.empty()) throw_unknown_host(address, resolved.failure);
    co_return verbs_listener(std::make_unique<listen_state>(by, address, resolved.endpoints.front()));
}

}  // namespace detail::verbs
}  // namespace rdmacoro
