// connect and listen: how endpoints come to be.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/channel.hpp>
#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rdmacoro {

namespace detail {

/// Ends when the peer has said who it is, or with the reason why it never will.
template <class Connection>
class open_operation : public basic_operation<open_operation<Connection>, void>, private phase_waiter {
public:
    explicit open_operation(Connection& of) noexcept
        : open_operation::basic_operation(&of.box().owner()), of_(of) {}
    void start() noexcept {
        reached = [](phase_waiter& self, std::error_code outcome) noexcept {
            auto& here = static_cast<open_operation&>(self);
            here.outcome_ = outcome;
            here.complete();
        };
        if (of_.is_open() || of_.is_down()) {
            reached(*this, of_.reason());
        } else {
            of_.opener() = this;
        }
    }
    void cancel() noexcept {
        of_.opener() = nullptr;
        reached(*this, make_error_code(errc::canceled));
    }
    void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
    result<void> outcome() noexcept { return outcome_; }

private:
    Connection& of_;
    std::error_code outcome_{};
};

/// Waits for the peer of a fresh endpoint to say who it is. Throws with the reason when that is no good.
template <class Endpoint>
task<> shake_hands(Endpoint& fresh, duration limit) {
    auto& connection = fresh.connection();
    open_operation<std::remove_reference_t<decltype(connection)>> opened(connection);
    const result<void> outcome = co_await as_result(timeout(opened, limit));
    if (!outcome) {
        const std::string context = connection.refusal().empty() ? fresh.peer_name() : connection.refusal();
        throw error(outcome.error(), context);
    }
}

/// Connects and shakes hands. The address is copied before the first suspension.
template <transport T, protocol_list P>
task<endpoint<T, P>> connect_in(typename T::domain& domain, std::string address, mailbox_options options) {
    endpoint<T, P> made(domain.owner(), co_await domain.connect(address), options);
    co_await shake_hands(made, options.handshake_limit);
    co_return made;
}
template <transport T, protocol_list P>
task<endpoint<T, P>> connect_default(std::string address, mailbox_options options) {
    auto& domain = running_scheduler().template service<typename T::domain>();
    co_return co_await connect_in<T, P>(domain, std::move(address), options);
}

}  // namespace detail

/// Awaitable.
/// Ends with an open `endpoint<T, P>`.
/// Completes: when the peer has answered with the same protocol list and wire version.
/// Buffers: the address is copied.
/// Concurrency: any number at a time.
/// Errors: `errc::connection_refused`, `errc::address_invalid`, `errc::permission_denied`, `errc::version_mismatch`,
///     `errc::protocol_mismatch`, `errc::timed_out`, all with text that names the address or the peer.
/// Cancellation: at any time.
/// Example:
///     auto peer = co_await rdmacoro::connect<rdmacoro::tcp>("127.0.0.1:7471");
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<endpoint<T, P>> connect(std::string_view address, const mailbox_options& options = {}) {
    return detail::connect_default<T, P>(std::string(address), options);
}

/// The same in a domain of the caller's. Described above.
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<endpoint<T, P>> connect(typename T::domain& domain, std::string_view address,
                                           const mailbox_options& options = {}) {
    return detail::connect_in<T, P>(domain, std::string(address), options);
}

/// Accepts endpoints. New peers shake hands beside each other and in the background: one that says nothing, or nonsense,
/// delays nobody and is dropped. Destroying it stops listening; endpoints already accepted go on.
template <transport T, protocol_list P = default_protocols<T>>
class listener {
public:
    /// Described at `listen`.
    listener(typename T::domain& domain, typename T::listener raw, const mailbox_options& options)
        : state_(std::make_unique<state>(domain, std::move(raw), options)) {
        state_->workers.spawn(accept_all, state_.get());
    }

    /// Awaitable.
    /// Ends with an open `endpoint<T, P>`.
    /// Completes: when a peer has connected and shaken hands.
    /// Buffers: none.
    /// Concurrency: any number at a time.
    /// Errors: what ended the listening socket.
    /// Cancellation: at any time; no peer is lost.
    /// Example:
    ///     for (;;) clients.spawn(serve, co_await listener.accept());
    [[nodiscard]] task<endpoint<T, P>> accept() { return accept_from(*state_); }

    /// Where it listens, in the form that `connect` takes; with the real port where 0 was asked for.
    [[nodiscard]] std::string address() const { return state_->raw.address(); }

    /// Peers that connected and were dropped for what they said, or did not say, since the beginning.
    [[nodiscard]] std::uint64_t refused() const noexcept { return state_->refused; }

private:
    static constexpr std::size_t most_waiting = 1024;

    struct state {
        state(typename T::domain& d, typename T::listener l, const mailbox_options& o)
            : domain(d), raw(std::move(l)), options(o), ready(most_waiting), places(most_waiting) {}
        typename T::domain& domain;
        typename T::listener raw;
        mailbox_options options;
        std::uint64_t refused = 0;
        std::error_code failure{};
        channel<endpoint<T, P>> ready;
        semaphore places;  // for peers that shake hands or wait to be accepted
        task_group workers;
    };

    static task<> accept_all(state* self) {
        for (;;) {
            co_await self->places.acquire();
            result<typename T::connection> made = co_await as_result(self->raw.accept());
            if (!made) {
                self->failure = made.error();
                self->ready.close();
                co_return;
            }
            self->workers.spawn(admit, self, std::move(*made));
        }
    }

    static task<> admit(state* self, typename T::connection made) {
        endpoint<T, P> fresh(self->domain.owner(), std::move(made), self->options);
        const result<void> outcome =
            co_await as_result(detail::shake_hands(fresh, self->options.handshake_limit));
        if (!outcome) {
            ++self->refused;
            self->places.release();
            co_return;
        }
        co_await self->ready.send(std::move(fresh));
    }

    static task<endpoint<T, P>> accept_from(state& self) {
        result<endpoint<T, P>> next = co_await as_result(self.ready.receive());
        if (!next) throw error(next.error() == errc::closed && self.failure ? self.failure : next.error());
        self.places.release();
        co_return std::move(*next);
    }

    std::unique_ptr<state> state_;
};

namespace detail {
template <transport T, protocol_list P>
task<listener<T, P>> listen_in(typename T::domain& domain, std::string address, mailbox_options options) {
    static_cast<void>(tuning::of_environment());  // throws here, and not when a peer comes
    co_return listener<T, P>(domain, co_await domain.listen(address), options);
}
template <transport T, protocol_list P>
task<listener<T, P>> listen_default(std::string address, mailbox_options options) {
    auto& domain = running_scheduler().template service<typename T::domain>();
    co_return co_await listen_in<T, P>(domain, std::move(address), options);
}
}  // namespace detail

/// Awaitable.
/// Ends with a `listener<T, P>`.
/// Completes: when peers can connect.
/// Buffers: the address is copied.
/// Concurrency: any number at a time, at different addresses.
/// Errors: `errc::address_in_use`, `errc::address_invalid`, `errc::permission_denied`.
/// Cancellation: at any time.
/// Example:
///     auto listener = co_await rdmacoro::listen<rdmacoro::tcp>("127.0.0.1:7471");
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<listener<T, P>> listen(std::string_view address, const mailbox_options& options = {}) {
    return detail::listen_default<T, P>(std::string(address), options);
}

/// The same in a domain of the caller's. Described above.
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<listener<T, P>> listen(typename T::domain& domain, std::string_view address,
                                          const mailbox_options& options = {}) {
    return detail::listen_in<T, P>(domain, std::string(address), options);
}

}  // namespace rdmacoro
