// ofi_listener: accepts connections and opens all of them at a time.
#pragma once

#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/detail/card_exchange.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/ofi/connection.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace rdmacoro {

namespace detail::fabric {

using guests = guest_list<engine, core, opening_outcome>;

/// The listening socket, and all that came in by it and was not taken yet.
class listen_state final : private fd_handler {
public:
    /// Throws an error whose text names the address.
    listen_state(engine& of, const inet_address& address, const inet_endpoint& at)
        : engine_(of), guests_(of) {
        if (const char* step = listen_for_cards(at, engine_.options().most_waiting, socket_); step != nullptr)
            refuse(address, step, errno);
        fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
            static_cast<listen_state&>(self).accept_all();
        };
        if (!engine_.watch(*this, socket_, EPOLLIN)) refuse(address, "watch the socket", errno);
        address_ = inet_endpoint::local(socket_);
    }
    listen_state(const listen_state&) = delete;
    listen_state& operator=(const listen_state&) = delete;
    inline ~listen_state();

    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    [[nodiscard]] guests& came() noexcept { return guests_; }
    [[nodiscard]] std::string_view scheme() const noexcept { return engine_.scheme(); }

private:
    [[gnu::cold, noreturn]] void refuse(const inet_address& address, const char* what, int why) {
        if (socket_ >= 0) ::close(std::exchange(socket_, -1));
        const std::string where = engine_.device().name() + ": listen on " + address.whole + ": ";
        switch (why) {
            case EADDRINUSE:
                throw error(errc::address_in_use,
                            where + "another program listens on port " + address.port +
                                "; find it with `ss -ltnp`, or listen on another port (0: any)");
            case EADDRNOTAVAIL: throw error(errc::address_invalid, where + "this is no address of this host");
            case EACCES:
                throw error(errc::permission_denied,
                            where + "ports below 1024 need the right CAP_NET_BIND_SERVICE");
            case EMFILE:
            case ENFILE:
            case ENOMEM: throw error(errc::no_resources, where + what + ": " + std::strerror(why));
            default: throw error(std::error_code(why, std::system_category()), where + what);
        }
    }

    void accept_all() noexcept {
        accept_cards(socket_, [this](int fd) noexcept {
            if (!guests_.invite([fd](core& which, opener& who) noexcept { which.accept(fd, who); }))
                ::close(fd);
        });
    }

    engine& engine_;
    int socket_ = -1;
    inet_endpoint address_;
    guests guests_;
};

inline listen_state::~listen_state() {
    engine_.unwatch(*this);
    if (socket_ >= 0) ::close(socket_);
}

template <class = void>
task<ofi_connection> accept(listen_state& state) {
    accept_operation<guests, core> one(state.came());
    core* made = co_await one;
    co_return ofi_connection(*made);
}

}  // namespace detail::fabric

/// Listens on one address of this host. Opens connections by itself while the scheduler runs; `accept` gives out
/// those that are open. Destroying it ends listening, drops whom nobody has taken, and ends a pending `accept` with
/// `errc::closed`.
class ofi_listener {
public:
    ofi_listener() noexcept = default;
    explicit ofi_listener(std::unique_ptr<detail::fabric::listen_state> state) noexcept
        : state_(std::move(state)) {}

    /// Awaitable.
    /// Completes: when a client has connected. Clients that do not speak the protocol are dropped unseen.
    /// Buffers: none.
    /// Concurrency: any number at a time; they are served in order.
    /// Errors: `errc::closed` when the listener is destroyed.
    /// Cancellation: at any time; a client that comes then waits for the next call.
    /// Example:
    ///     rdmacoro::ofi_connection made = co_await listening.accept();
    [[nodiscard]] task<ofi_connection> accept() { return detail::fabric::accept(*state_); }

    /// What it listens on, with the real port: "ofi+tcp://10.0.0.1:7471".
    [[nodiscard]] std::string address() const { return state_->address().url(state_->scheme()); }

private:
    std::unique_ptr<detail::fabric::listen_state> state_;
};

namespace detail::fabric {

template <class = void>
task<ofi_listener> listen(engine& by, inet_address address) {
    inet_resolve resolve(address, AI_PASSIVE);
    const inet_resolved resolved = co_await resolve;
    if (resolved.failure != 0 || resolved.endpoints.empty())
        throw_unknown_host(by, address, resolved.failure);
    co_return ofi_listener(std::make_unique<listen_state>(by, address, resolved.endpoints.front()));
}

}  // namespace detail::fabric
}  // namespace rdmacoro
