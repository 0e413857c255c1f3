// Opening connections from either side: the waiter of an opening connection, and the accept queue of a listener.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/detail/first_to_connect.hpp>
#include <rdmacoro/transport/detail/host_places.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace rdmacoro::detail {

/// The waiter of a connection that is opening. Called once; after a failure the session must not be used again. `Outcome` has a
/// `code`: `errc::ok`, or why the connection could not be opened.
template <class Session, class Outcome>
class connection_opener {
public:
    virtual void opened(Session& which, const Outcome& how) noexcept = 0;

protected:
    ~connection_opener() = default;
};

/// How one attempt to connect ended. Owns the session that is open.
template <class Session, class Outcome>
struct connect_attempt {
    struct let_go {
        void operator()(Session* open) const noexcept { open->abandon(); }
    };

    Outcome how{};
    std::unique_ptr<Session, let_go> made;

    [[nodiscard]] bool connected() const noexcept { return made != nullptr; }
};

/// Connects to one address: `Session::connect` of a session that `Engine::make_session` made. Canceling it gives the connection up.
template <class Engine, class Session, class Outcome>
class connect_to final
    : public basic_operation<connect_to<Engine, Session, Outcome>, connect_attempt<Session, Outcome>>,
      private connection_opener<Session, Outcome> {
    using attempt = connect_attempt<Session, Outcome>;

public:
    connect_to(Engine& by, const inet_endpoint& to) noexcept
        : basic_operation<connect_to, attempt>(&by.owner()), engine_(by), to_(to) {}
    connect_to(const connect_to&) = delete;
    connect_to& operator=(const connect_to&) = delete;

    void start() noexcept {
        session_ = engine_.make_session();
        if (session_ == nullptr) {
            attempt_.how = {errc::no_resources, ENOMEM, "make room"};
            return this->complete();
        }
        session_->connect(to_, *this);
    }
    void cancel() noexcept {
        std::exchange(session_, nullptr)->abandon();
        finish_canceled();
        this->complete();
    }
    void finish_canceled() noexcept { attempt_.how.code = errc::canceled; }

    [[nodiscard]] result<attempt> outcome() noexcept {
        if (attempt_.how.code == errc::canceled) return errc::canceled;
        return std::move(attempt_);
    }

private:
    void opened(Session& which, const Outcome& how) noexcept override {
        session_ = nullptr;
        attempt_.how = how;
        if (how.code == errc::ok) attempt_.made.reset(&which);
        this->complete();
    }

    Engine& engine_;
    inet_endpoint to_;
    Session* session_ = nullptr;
    attempt attempt_;
};

/// Connections that a listener has accepted: opening ones, open ones that accept() has not returned yet, and the waiters of
/// accept(). All of them end with it. A peer that greets wrongly, or not at all, is dropped without effect on the others. When as many
/// wait as may, a new one takes the place of the oldest that has not opened, of the host that holds the most places; unless that host
/// holds no more than the new one's, and the old one has waited for less than a tenth of the time that it has.
template <class Engine, class Session, class Outcome>
class accept_queue {
    struct incoming final : connection_opener<Session, Outcome>, list_node<incoming> {
        accept_queue* host = nullptr;
        Session* which = nullptr;
        time_point since{};
        std::uint8_t from = 0;
        void opened(Session&, const Outcome& how) noexcept override { host->opened(*this, how.code); }
    };

public:
    explicit accept_queue(Engine& of) noexcept : engine_(of) {}
    accept_queue(const accept_queue&) = delete;
    accept_queue& operator=(const accept_queue&) = delete;
    ~accept_queue() {
        while (incoming* one = accepting_.front()) forget(*one);
        while (incoming* one = ready_.front()) forget(*one);
        end();
    }

    [[nodiscard]] scheduler& owner() const noexcept { return engine_.owner(); }

    /// Makes a session and begins to open it by `begin(session, opener)`. `from` is its host, by `host_hash`. False: as many as may wait
    /// do, or there is no memory.
    template <class Function>
    [[nodiscard]] bool admit(Function begin, std::uint8_t from = 0) noexcept {
        if (waiting_ >= engine_.options().most_waiting && !drop_stranger(from)) return false;
        auto* made = new (std::nothrow) incoming;
        if (made == nullptr) return false;
        made->which = engine_.make_session();
        if (made->which == nullptr) {
            delete made;
            return false;
        }
        made->host = this;
        made->since = owner().now();
        made->from = from;
        hosts_.take(from);
        accepting_.push_back(*made);
        ++waiting_;
        begin(*made->which, *made);  // it may be destroyed when this returns
        return true;
    }

    /// An open connection, or nullptr.
    [[nodiscard]] Session* take() noexcept {
        incoming* first = ready_.pop_front();
        if (first == nullptr) return nullptr;
        Session* made = std::exchange(first->which, nullptr);
        forget(*first);
        return made;
    }

    /// `waiter` gets the next one; none, at once, when the queue has ended.
    void wait(accept_waiter<Session>& waiter) noexcept {
        if (ended_ != errc::ok) return waiter.arrived(nullptr, ended_);
        waiters_.push_back(waiter);
    }

    /// Nothing is accepted any more: waiters get none, now and later, for the reason `why`.
    void end(errc why = errc::closed) noexcept {
        ended_ = why;
        while (auto* waiter = waiters_.pop_front()) waiter->arrived(nullptr, why);
    }

private:
    static constexpr int grace_part = 10;  // of the time for opening

    /// Makes room for one of the host `newcomer`.
    [[nodiscard, gnu::cold]] bool drop_stranger(std::uint8_t newcomer) noexcept {
        incoming* const found = hosts_.next_to_drop(accepting_);
        if (found == nullptr) return false;
        const duration grace = engine_.options().handshake_timeout / grace_part;
        if (!hosts_.holds_more(found->from, newcomer) && owner().now() - found->since < grace) return false;
        hosts_.release(found->from);
        forget(*found);
        return true;
    }

    void opened(incoming& one, errc outcome) noexcept {
        hosts_.release(one.from);
        if (outcome != errc::ok) {
            one.which = nullptr;
            forget(one);
        } else if (auto* first = waiters_.pop_front(); first != nullptr) {
            Session* made = std::exchange(one.which, nullptr);
            forget(one);
            first->arrived(made);
        } else {
            static_cast<list_node<incoming>&>(one).unlink();
            ready_.push_back(one);
        }
    }

    void forget(incoming& one) noexcept {
        static_cast<list_node<incoming>&>(one).unlink();
        if (one.which != nullptr) one.which->abandon();
        delete &one;
        --waiting_;
    }

    Engine& engine_;
    unsigned waiting_ = 0;
    errc ended_ = errc::ok;               // not any more: why not
    host_places hosts_;                   // of those that have not opened
    intrusive_list<incoming> accepting_;  // not open yet, oldest first
    intrusive_list<incoming> ready_;
    accept_waiters<Session> waiters_;
};

// ---- the tasks that domains and listeners return

template <class Session, class Outcome, class Engine>
task<connect_attempt<Session, Outcome>> connect_to_one(Engine& by, inet_endpoint to) {
    connect_to<Engine, Session, Outcome> one(by, to);
    co_return co_await one;
}

/// For `first_to_connect`.
template <class Session, class Outcome, class Engine>
struct connect_attempts_of {
    Engine* by;
    task<connect_attempt<Session, Outcome>> operator()(const inet_endpoint& to) const {
        return connect_to_one<Session, Outcome>(*by, to);
    }
};

/// Connects to the first address of the host that answers. `prefix` begins the texts of errors;
/// `throw_no_connection(by, address, outcome)` is found by the engine's namespace.
template <class Connection, class Outcome, class Session, class Engine>
task<Connection> connect_to_any(Engine& by, inet_address address, std::string prefix) {
    if (address.host.empty())
        throw_error(errc::address_invalid, prefix + ": connect to " + address.whole + ": no host");
    inet_resolve resolve(address, 0);
    const inet_resolved resolved = co_await resolve;
    if (resolved.none()) resolved.throw_none(prefix, address);
    const connect_attempts_of<Session, Outcome, Engine> attempts{&by};
    connect_attempt<Session, Outcome> tried =
        co_await first_to_connect<connect_attempt<Session, Outcome>>(resolved.endpoints, attempts);
    if (!tried.connected()) throw_no_connection(by, address, tried.how);
    co_return Connection(*tried.made.release());
}

/// The next connection of an accept queue.
template <class Connection, class Session, class Queue>
task<Connection> accept_next(Queue& from) {
    accept_operation<Queue, Session> one(from);
    Session* made = co_await one;
    co_return Connection(*made);
}

/// A listener with a new `State(by, address, endpoint)`, on the first address of the host.
template <class Listener, class State, class Engine>
task<Listener> listen_on_first(Engine& by, inet_address address, std::string prefix) {
    inet_resolve resolve(address, AI_PASSIVE);
    const inet_resolved resolved = co_await resolve;
    if (resolved.none()) resolved.throw_none(prefix, address);
    co_return Listener(std::make_unique<State>(by, address, resolved.endpoints.front()));
}

}  // namespace rdmacoro::detail
