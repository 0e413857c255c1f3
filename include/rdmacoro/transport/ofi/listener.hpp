// ofi_listener: accepts connections and opens all of them at a time.
#pragma once

#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/ofi/connection.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace rdmacoro {

namespace detail::fabric {

/// The listening socket, and all that came in by it and was not taken yet. A peer that greets wrongly, or not
/// at all, is dropped and troubles nobody else.
class listen_state final : private fd_handler {
public:
    /// Throws an error whose text names the address.
    listen_state(engine& of, const inet_address& address, const inet_endpoint& at) : engine_(of) {
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
    listen_state(const listen_state&) = delete;
    listen_state& operator=(const listen_state&) = delete;
    inline ~listen_state();

    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    [[nodiscard]] scheduler& owner() const noexcept { return engine_.owner(); }
    [[nodiscard]] std::string_view scheme() const noexcept { return engine_.scheme(); }

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

    void accept_all() noexcept {
        constexpr int most = 64;
        for (int n = 0; n < most; ++n) {
            const int fd = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0) return;
            if (guest* who = make_guest()) {
                who->which->accept(fd, *who);
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
    while (guest* who = guests_.front()) forget(*who);
    while (guest* who = ready_.front()) forget(*who);
    while (auto* who = waiters_.pop_front()) who->arrived(nullptr);
}

template <class = void>
task<ofi_connection> accept(listen_state& state) {
    accept_operation<listen_state, core> one(state);
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
