// connect and listen: how endpoints come to be.
#pragma once

#include <rdmacoro/coro/detail/described_step.hpp>
#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/messaging/detail/connect_attempts.hpp>
#include <rdmacoro/messaging/detail/opening.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include <concepts>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace rdmacoro {

/// How to connect where the listener may not be there yet.
struct connect_options {
    /// For how long in all to try: again after a refusal, when the peer is lost, closes or is silent in the handshake, where a
    /// limit of the system is reached (`errc::no_resources`), and while the network or the host cannot be reached. Zero: once.
    duration retry_for = duration::zero();
    /// Of the endpoint.
    mailbox_options mailbox{};
};

namespace detail {

/// A transport with several devices chooses one by the address, for which it may have to look up a name: `domain_for` is a task that ends
/// with a pointer to the domain.
template <class T>
concept chooses_domain =
    requires(scheduler& here, std::string_view address) { T::domain_for(here, address); };

/// A domain that cannot do what lists with `delegates` ask of its links says so before the first of them.
template <protocol_list P, class Domain>
void require_protocols(Domain& domain) {
    if constexpr (P::delegates && requires { domain.require_matching(); }) domain.require_matching();
}

/// Connects, in `domain` or in the scheduler's own, and shakes hands. The address is copied before the first suspension.
template <transport T, protocol_list P>
[[gnu::cold]] task<endpoint<T, P>> connect_in(typename T::domain* domain, std::string address,
                                              mailbox_options options) {
    scheduler& here = running_scheduler();
    co_await turn_for_others();  // it may fail at once, again and again
    const described_step connecting(here, connect_facts, address);
    if (domain != nullptr) {
        require_current(domain->owner(), "connect: the domain is of another scheduler");
    } else if constexpr (chooses_domain<T>) {
        domain = co_await T::domain_for(here, address);
    } else {
        domain = &here.template service<typename T::domain>();
    }
    require_protocols<P>(*domain);
    endpoint<T, P> made(domain->owner(), co_await domain->connect(address), options);
    open_operation opened(made.connection());
    const result<void> outcome = co_await as_result(timeout(opened, options.handshake_limit));
    if (!outcome) throw_refused(made.connection(), outcome.error());
    co_return made;
}

/// The same, again and again until it succeeds or the time is over.
template <transport T, protocol_list P>
[[gnu::cold]] task<endpoint<T, P>> connect_retrying(typename T::domain* domain, std::string address,
                                                    connect_options options) {
    scheduler& here = running_scheduler();
    connect_attempts attempts(address, options.retry_for, here.now());
    for (;;) {
        try {
            co_return co_await timeout(connect_in<T, P>(domain, address, options.mailbox),
                                       attempts.left(here.now()));
        } catch (const std::system_error& why) {
            if (!attempts.failed(why)) throw;
        }
        const duration pause = attempts.pause(here.now());
        {
            const described_step pausing(here, connect_pause_facts, address,
                                         deadline_after(here.now(), pause));
            co_await sleep_operation(pause, false);
        }
        if (attempts.left(here.now()) <= duration::zero()) attempts.give_up();
    }
}

}  // namespace detail

/// Awaitable.
/// Ends with an open `endpoint<T, P>`.
/// Completes: when the listener has accepted it, with the same protocol list and wire version: what is dropped before has not connected.
/// Buffers: the address is copied.
/// Concurrency: any number at a time.
/// Errors: `errc::connection_refused`, `errc::address_invalid`, `errc::permission_denied`, `errc::version_mismatch`,
///     `errc::protocol_mismatch`, `errc::timed_out`, `errc::peer_lost`, `errc::protocol_violation` (what listens there is no program of
///     this toolkit), `errc::no_resources`, `errc::unsupported`, all with text that names the address or the peer.
/// Cancellation: at any time.
/// Example:
///     auto peer = co_await rdmacoro::connect<rdmacoro::tcp>("127.0.0.1:7471");
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<endpoint<T, P>> connect(std::string_view address, const mailbox_options& options = {}) {
    return detail::connect_in<T, P>(nullptr, std::string(address), options);
}

/// The same in a domain of the caller's, which is of the scheduler that runs: `errc::invalid_argument` names both if not. Described
/// above.
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<endpoint<T, P>> connect(typename T::domain& domain, std::string_view address,
                                           const mailbox_options& options = {}) {
    return detail::connect_in<T, P>(&domain, std::string(address), options);
}

/// The same for a listener that may not be there yet: `options.retry_for` is the time that all may take. Between two attempts it
/// waits for a millisecond, then for twice as long each time, up to 250 ms, and a random part of that less. Errors that do not
/// pass, as a wrong address or another version, end it at once. In the end it throws the error of the last attempt that said why.
///
///     auto peer = co_await rdmacoro::connect<rdmacoro::shm>("shm://late", {.retry_for = 5s});
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<endpoint<T, P>> connect(std::string_view address, const connect_options& options) {
    if (options.retry_for <= duration::zero())
        return detail::connect_in<T, P>(nullptr, std::string(address), options.mailbox);
    return detail::connect_retrying<T, P>(nullptr, std::string(address), options);
}

/// The same in a domain of the caller's.
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<endpoint<T, P>> connect(typename T::domain& domain, std::string_view address,
                                           const connect_options& options) {
    if (options.retry_for <= duration::zero())
        return detail::connect_in<T, P>(&domain, std::string(address), options.mailbox);
    return detail::connect_retrying<T, P>(&domain, std::string(address), options);
}

namespace detail {

/// The peer's host, by `host_hash`, where the transport knows several.
template <class Connection>
[[nodiscard]] std::uint8_t host_of(const Connection& made) noexcept {
    if constexpr (requires { made.peer_host(); }) {
        return made.peer_host();
    } else {
        return 0;
    }
}

/// The state of a listener.
template <transport T, protocol_list P>
class listener_state final : public listener_base {
public:
    [[gnu::cold]] listener_state(typename T::domain& domain, typename T::listener raw,
                                 const mailbox_options& options);

    [[nodiscard]] std::string address() const { return raw_.address(); }
    [[nodiscard]] scheduler& owner() noexcept { return domain_.owner(); }

private:
    /// Accepts connections as long as there are places, and lets them shake hands.
    [[gnu::cold]] static child accept_all(child_owner&, listener_state* self);

    typename T::domain& domain_;
    typename T::listener raw_;
    message_pool pool_;  // of the links that it accepts
    mailbox_options options_;
    task_group workers_;
};

template <transport T, protocol_list P>
listener_state<T, P>::listener_state(typename T::domain& domain, typename T::listener raw,
                                     const mailbox_options& options)
    : listener_base(options.handshake_limit, workers_),
      domain_(domain),
      raw_(std::move(raw)),
      pool_(options.pool != nullptr ? *options.pool : message_pool::usual()),
      options_(options) {
    options_.pool = &pool_;
    own_children::begin(workers_, running_scheduler(), accept_all, this);
}
template <transport T, protocol_list P>
child listener_state<T, P>::accept_all(child_owner&, listener_state* self) {
    try {
        for (;;) {
            typename T::connection made = co_await self->raw_.accept();
            const std::uint8_t from = host_of(made);
            bool placed = false;
            while (!(placed = self->take_place())) {
                if constexpr (requires { self->raw_.pressed(); }) {
                    if (self->raw_.pressed() && self->refuse(from)) break;
                }
                co_await find_place<>(self, from);
            }
            if (!placed) continue;  // a flood of its host fills the system's queue: it is dropped
            try {
                constexpr bool answers = true;  // a connect that has ended well is one that this side accepts
                self->begin_handshake(
                    new endpoint_state<T, P>(self->domain_.owner(), std::move(made), self->options_, answers),
                    from);
            } catch (const std::bad_alloc&) {
                self->refuse_unopened();
            }
        }
    } catch (const std::system_error& failed) {
        self->fail(failed.code());
    } catch (const std::bad_alloc&) {
        self->fail(make_error_code(errc::no_resources));
    }
}

}  // namespace detail

/// Accepts endpoints. The handshakes of new peers run concurrently in the background: a peer that is silent, or sends
/// nonsense, delays no other and is dropped. As many as 1,024, or a quarter of RLIMIT_NOFILE if that is less, may shake hands or wait
/// for accept(); then the oldest that has said nothing gives its place to a new one, first those of the host that holds the most
/// places. Destroying it stops listening; endpoints already accepted go on.
template <transport T, protocol_list P = default_protocols<T>>
class listener {
public:
    /// Described at `listen`.
    listener(typename T::domain& domain, typename T::listener raw, const mailbox_options& options)
        : state_(std::make_unique<state>(domain, std::move(raw), options)) {}

    /// Awaitable.
    /// Ends with an open `endpoint<T, P>`.
    /// Completes: when a peer has connected and shaken hands.
    /// Buffers: none.
    /// Concurrency: any number at a time.
    /// Errors: the error that ended the listening socket.
    /// Cancellation: at any time; no peer is lost.
    /// Example:
    ///     for (;;) clients.spawn(serve, co_await listener.accept());
    [[nodiscard]] task<endpoint<T, P>> accept() { return accept_from(state_.get()); }

    /// Where it listens, in the form that `connect` takes; with the real port where 0 was asked for.
    [[nodiscard]] std::string address() const { return there(state_.get()).address(); }

    /// Peers that connected and failed their handshake, since the beginning.
    [[nodiscard]] std::uint64_t refused() const noexcept { return state_ != nullptr ? state_->refused() : 0; }
    /// The last of them, and why: `errc::protocol_mismatch` and `errc::version_mismatch` with what both sides have,
    /// `errc::protocol_violation`, `errc::timed_out`, `errc::peer_lost`; `errc::canceled` for one that had said nothing and gave its place to
    /// a new one; `errc::no_resources` where its host held too many places, or there was no memory for it. Peers that a
    /// transport drops before, such as those of another user, are not counted.
    [[nodiscard]] const listener_refusal& last_refusal() const { return there(state_.get()).last_refusal(); }

private:
    using state = detail::listener_state<T, P>;

    [[gnu::cold]] static task<endpoint<T, P>> accept_from(state* self);
    [[nodiscard]] static state& there(state* self) {
        if (self == nullptr) detail::throw_error(errc::invalid_argument, "the listener was moved from");
        return *self;
    }

    std::unique_ptr<state> state_;
};

template <transport T, protocol_list P>
task<endpoint<T, P>> listener<T, P>::accept_from(state* self) {
    detail::require_current(there(self).owner(), "accept: the listener is of another scheduler");
    detail::listener_base::accept_operation next(*self);
    co_await next;
    co_return endpoint<T, P>(next.take());
}

namespace detail {
/// Listens, in `domain` or in the scheduler's own.
template <transport T, protocol_list P>
[[gnu::cold]] task<listener<T, P>> listen_in(typename T::domain* domain, std::string address,
                                             mailbox_options options) {
    co_await unless_stopped();
    static_cast<void>(tuning::of_environment());  // throws here, and not when a peer comes
    if (domain != nullptr) {
        require_current(domain->owner(), "listen: the domain is of another scheduler");
    } else if constexpr (chooses_domain<T>) {
        domain = co_await T::domain_for(running_scheduler(), address);
    } else {
        domain = &running_scheduler().template service<typename T::domain>();
    }
    require_protocols<P>(*domain);
    co_return listener<T, P>(*domain, co_await domain->listen(address), options);
}
}  // namespace detail

/// Awaitable.
/// Ends with a `listener<T, P>`.
/// Completes: when peers can connect.
/// Buffers: the address is copied.
/// Concurrency: any number at a time, at different addresses.
/// Errors: `errc::address_in_use`, over shm and tcp after 200 ms, for which a name or port that is taken is tried again: that of a
///     process that was killed comes free some milliseconds after its end. `errc::address_invalid`, `errc::permission_denied`,
///     `errc::no_resources`, `errc::unsupported`.
/// Cancellation: at any time.
/// Example:
///     auto listener = co_await rdmacoro::listen<rdmacoro::tcp>("127.0.0.1:7471");
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<listener<T, P>> listen(std::string_view address, const mailbox_options& options = {}) {
    return detail::listen_in<T, P>(nullptr, std::string(address), options);
}

/// The same in a domain of the caller's, as for `connect`. Described above.
template <transport T, protocol_list P = default_protocols<T>>
[[nodiscard]] task<listener<T, P>> listen(typename T::domain& domain, std::string_view address,
                                          const mailbox_options& options = {}) {
    return detail::listen_in<T, P>(&domain, std::string(address), options);
}

}  // namespace rdmacoro
