// verbs_listener: accepts connections and opens all of them at a time.
#pragma once

#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/detail/card_exchange.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/verbs_rc/connection.hpp>

#include <memory>
#include <string>

namespace rdmacoro {

namespace detail::verbs {

using guests = guest_list<engine, core, opening_outcome>;

/// The listening identifier, or socket, and all that came in by it and was not taken yet.
class listen_state final : private cm_party, private fd_handler {
public:
    /// Throws an error whose text names the address.
    listen_state(engine& of, const inet_address& address, const inet_endpoint& at)
        : engine_(of), guests_(of) {
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
    [[nodiscard]] guests& came() noexcept { return guests_; }

private:
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
        if (const char* step = listen_for_cards(at, engine_.options().most_waiting, socket_); step != nullptr)
            refuse(address, step, errno);
        fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
            static_cast<listen_state&>(self).accept_all();
        };
        if (!engine_.watch(*this, socket_, EPOLLIN)) refuse(address, "watch the socket", errno);
        address_ = inet_endpoint::local(socket_);
    }

    void cm_event(const cm_news& news) noexcept override {
        if (news.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
        if (guests_.invite([&](core& which, opener& who) noexcept { which.accept_by_cm(news, who); })) return;
        const greeting::bytes said = engine_.own_greeting().store();
        static_cast<void>(::rdma_reject(news.id, said.data(), said.size()));
        ::rdma_destroy_id(news.id);
    }

    void accept_all() noexcept {
        accept_cards(socket_, [this](int fd) noexcept {
            if (!guests_.invite([fd](core& which, opener& who) noexcept { which.accept_by_socket(fd, who); }))
                ::close(fd);
        });
    }

    engine& engine_;
    rdma_cm_id* id_ = nullptr;
    int socket_ = -1;
    inet_endpoint address_;
    guests guests_;
};

inline listen_state::~listen_state() {
    engine_.unwatch(*this);
    if (socket_ >= 0) ::close(socket_);
    if (id_ != nullptr) ::rdma_destroy_id(id_);
}

template <class = void>
task<verbs_connection> accept(listen_state& state) {
    accept_operation<guests, core> one(state.came());
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
