// event: one side sets it, others wait until it is set.
#pragma once

#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/operation.hpp>

namespace rdmacoro {

/// A flag that coroutines of one scheduler wait for. It stays set until it is reset. Whoever waits when it is set goes
/// on, in the order they came, even if it is reset before they are resumed. Destroying it while somebody waits ends the
/// process with a message. For one thread; other threads go through `scheduler::post` or a `thread_channel`.
class event {
public:
    explicit event(bool set = false) noexcept : set_(set) {}
    event(const event&) = delete;
    event& operator=(const event&) = delete;
    ~event() {
        if (!waiting_.empty()) detail::fatal("an event was destroyed while somebody waits for it");
    }

    /// What `wait` gives. Described at `wait`.
    class wait_operation final : public basic_operation<wait_operation, void>,
                                 private detail::wait_node<event> {
        using base = basic_operation<wait_operation, void>;

    public:
        explicit wait_operation(event& of) noexcept : base(nullptr), event_(&of) {}

    private:
        friend base;
        friend class event;
        friend class detail::intrusive_list<wait_operation, event>;

        void start() noexcept {
            if (event_->set_) {
                complete();
            } else {
                event_->waiting_.push_back(*this);
            }
        }
        void cancel() noexcept {
            this->unlink();
            finish_canceled();
            complete();
        }
        void finish_canceled() noexcept { canceled_ = true; }
        result<> outcome() noexcept { return canceled_ ? result<>(errc::canceled) : result<>(); }

        event* event_;
        bool canceled_ = false;
    };

    /// Awaitable.
    /// Completes: when the event is set; at once when it is.
    /// Buffers: none.
    /// Concurrency: any number may wait; all go on.
    /// Errors: none but cancellation.
    /// Cancellation: ends at once with `errc::canceled`.
    /// Example:
    ///     co_await ready.wait();
    [[nodiscard]] wait_operation wait() noexcept { return wait_operation(*this); }

    /// Sets it; all who wait go on.
    void set() noexcept {
        set_ = true;
        while (wait_operation* first = waiting_.pop_front()) first->complete();
    }

    /// From now on waiting waits again.
    void reset() noexcept { set_ = false; }

    [[nodiscard]] bool is_set() const noexcept { return set_; }

private:
    bool set_;
    detail::intrusive_list<wait_operation, event> waiting_;
};

}  // namespace rdmacoro
