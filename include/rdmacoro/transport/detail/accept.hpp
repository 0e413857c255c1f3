// What listeners of sockets and of connection managers share: who waits for the next connection.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/result.hpp>

#include <utility>

namespace rdmacoro::detail {

struct accept_tag;

/// Somebody who waits for the next connection of a listener. `Core` is what a connection holds.
template <class Core>
class accept_waiter : public list_node<accept_tag> {
public:
    virtual void arrived(Core* which) noexcept = 0;  ///< nullptr: the listener is gone

protected:
    ~accept_waiter() = default;
};

/// Those who wait, in order.
template <class Core>
using accept_waiters = intrusive_list<accept_waiter<Core>, accept_tag>;

/// Waits for the next good connection of `State`, a listener's state: `take()` gives one that is open, or nullptr; `wait(who)`
/// puts a waiter at the end of those who wait; `owner()` is the scheduler. Canceled at any time; a connection that was given out
/// and not taken up is abandoned.
template <class State, class Core>
class accept_operation final : public basic_operation<accept_operation<State, Core>, Core*>,
                               private accept_waiter<Core> {
public:
    explicit accept_operation(State& from) noexcept
        : basic_operation<accept_operation<State, Core>, Core*>(&from.owner()), listening_(from) {}
    accept_operation(const accept_operation&) = delete;
    accept_operation& operator=(const accept_operation&) = delete;
    ~accept_operation() {
        if (core_ != nullptr) core_->abandon();
    }

    void start() noexcept {
        core_ = listening_.take();
        if (core_ != nullptr) return this->complete();
        listening_.wait(*this);
    }
    void cancel() noexcept {
        static_cast<list_node<accept_tag>&>(*this).unlink();
        finish_canceled();
        this->complete();
    }
    void finish_canceled() noexcept { failure_ = errc::canceled; }

    [[nodiscard]] result<Core*> outcome() noexcept {
        if (failure_ != errc::ok) return failure_;
        return std::exchange(core_, nullptr);
    }

private:
    void arrived(Core* which) noexcept override {
        core_ = which;
        if (which == nullptr) failure_ = errc::closed;
        this->complete();
    }

    State& listening_;
    Core* core_ = nullptr;
    errc failure_ = errc::ok;
};

}  // namespace rdmacoro::detail
