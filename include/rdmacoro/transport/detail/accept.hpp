// Waiting for the next connection, for listeners of sockets and of connection managers.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/result.hpp>

#include <utility>

namespace rdmacoro::detail {

struct accept_tag;

/// A waiter for the next connection of a listener. `Session` is the state that a connection holds.
template <class Session>
class accept_waiter : public list_node<accept_tag> {
public:
    /// Nullptr: none comes any more, for the reason `why`.
    virtual void arrived(Session* which, errc why = errc::closed) noexcept = 0;

protected:
    ~accept_waiter() = default;
};

/// Waiters, in order.
template <class Session>
using accept_waiters = intrusive_list<accept_waiter<Session>, accept_tag>;

/// Waits for the next good connection of `State`, a listener's state: `take()` gives one that is open, or nullptr; `wait(waiter)`
/// appends it to the waiters; `owner()` is the scheduler. Canceled at any time; a connection that was given out
/// and not taken up is abandoned.
template <class State, class Session>
class accept_operation final : public basic_operation<accept_operation<State, Session>, Session*>,
                               private accept_waiter<Session> {
public:
    explicit accept_operation(State& from) noexcept
        : basic_operation<accept_operation<State, Session>, Session*>(&from.owner()), listening_(from) {}
    accept_operation(const accept_operation&) = delete;
    accept_operation& operator=(const accept_operation&) = delete;
    ~accept_operation() {
        if (session_ != nullptr) session_->abandon();
    }

    void start() noexcept {
        session_ = listening_.take();
        if (session_ != nullptr) return this->complete();
        listening_.wait(*this);
    }
    void cancel() noexcept {
        static_cast<list_node<accept_tag>&>(*this).unlink();
        finish_canceled();
        this->complete();
    }
    void finish_canceled() noexcept { failure_ = errc::canceled; }

    [[nodiscard]] result<Session*> outcome() noexcept {
        if (failure_ != errc::ok) return failure_;
        return std::exchange(session_, nullptr);
    }

private:
    void arrived(Session* which, errc why) noexcept override {
        session_ = which;
        if (which == nullptr) failure_ = why;
        this->complete();
    }

    State& listening_;
    Session* session_ = nullptr;
    errc failure_ = errc::ok;
};

}  // namespace rdmacoro::detail
