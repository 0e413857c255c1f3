// event: a flag; coroutines wait until it is set.
#pragma once

#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/operation.hpp>

namespace rdmacoro {

/// A flag that coroutines of one scheduler wait for. It stays set until it is reset. Coroutines that wait when it is set
/// are resumed in the order of their waits, even if it is reset before. Destroying it while a coroutine waits ends the
/// process with a message. For one thread; other threads use `scheduler::post` or a `thread_channel`.
class event {
public:
    /// `set`: whether it begins set.
    explicit event(bool set = false) noexcept : set_(set) {}
    event(const event&) = delete;
    event& operator=(const event&) = delete;
    ~event();

    /// The operation of `wait`. Described at `wait`.
    class wait_operation final : public basic_operation<wait_operation, void>,
                                 private detail::wait_node<event> {
        using base = basic_operation<wait_operation, void>;

    public:
        explicit wait_operation(event& of) noexcept : base(nullptr), event_(&of) {}

    private:
        friend base;
        friend class event;
        friend class detail::intrusive_list<wait_operation, event>;

        void start() noexcept;
        void cancel() noexcept;
        void finish_canceled() noexcept { canceled_ = true; }
        result<> outcome() noexcept;

        event* event_;
        bool canceled_ = false;
    };

    /// Awaitable.
    /// Completes: when the event is set; at once when it is.
    /// Buffers: none.
    /// Concurrency: any number may wait; all are resumed.
    /// Errors: none but cancellation.
    /// Cancellation: ends at once with `errc::canceled`.
    /// Example:
    ///     co_await ready.wait();
    [[nodiscard]] wait_operation wait() noexcept { return wait_operation(*this); }

    /// Sets it and resumes all waiting coroutines.
    void set() noexcept;

    /// Later waits do not complete until it is set again.
    void reset() noexcept { set_ = false; }

    /// Whether a wait would end at once.
    [[nodiscard]] bool is_set() const noexcept { return set_; }

private:
    bool set_;
    detail::intrusive_list<wait_operation, event> waiting_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/event.ipp>
#endif
