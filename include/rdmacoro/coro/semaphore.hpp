// semaphore: a number of permits that coroutines of one scheduler share.
#pragma once

#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <cstddef>

namespace rdmacoro {

/// Permits, granted in the order of the requests, so that small requests do not starve a large one. Destroying it while a
/// coroutine waits ends the process with a message. For one thread.
class semaphore {
public:
    /// `permits`: how many are free at the beginning.
    /// `described`: whether waiting requests are described; the toolkit's to set.
    explicit semaphore(std::size_t permits, bool described = true) noexcept
        : permits_(permits), described_(described) {}
    semaphore(const semaphore&) = delete;
    semaphore& operator=(const semaphore&) = delete;
    ~semaphore();

    /// The operation of `acquire`. Described at `acquire`.
    class acquire_operation final : public basic_operation<acquire_operation, void>,
                                    private detail::wait_node<semaphore> {
        using base = basic_operation<acquire_operation, void>;

    public:
        acquire_operation(semaphore& of, std::size_t count) noexcept
            : base(nullptr), semaphore_(&of), count_(count) {}

    private:
        friend base;
        friend class semaphore;
        friend class detail::intrusive_list<acquire_operation, semaphore>;

        void start() noexcept;
        void cancel() noexcept;
        void finish_canceled() noexcept { canceled_ = true; }
        result<> outcome() noexcept;

        semaphore* semaphore_;
        std::size_t count_;
        bool canceled_ = false;
    };

    /// Awaitable.
    /// Completes: when `count` permits are granted; at once when they are available and no other request waits.
    /// Buffers: none.
    /// Concurrency: any number may wait; permits are granted in the order of the requests.
    /// Errors: none but cancellation. A request for more permits than are ever released does not complete.
    /// Cancellation: ends at once with `errc::canceled` and no permit, unless the permits were granted before.
    /// Example:
    ///     co_await slots.acquire();
    ///     co_await peer.send(data);
    ///     slots.release();
    [[nodiscard]] acquire_operation acquire(std::size_t count = 1) noexcept {
        return acquire_operation(*this, count);
    }

    /// Takes `count` permits if they are available and no other request waits.
    [[nodiscard]] bool try_acquire(std::size_t count = 1) noexcept {
        if (!waiting_.empty() || count > permits_) return false;
        permits_ -= count;
        return true;
    }

    /// Returns `count` permits, or adds them.
    void release(std::size_t count = 1) noexcept {
        permits_ =
            count > static_cast<std::size_t>(-1) - permits_ ? static_cast<std::size_t>(-1) : permits_ + count;
        if (!waiting_.empty()) serve();
    }

    /// The number of permits that are not taken.
    [[nodiscard]] std::size_t available() const noexcept { return permits_; }

private:
    /// Grants the first requests while the permits suffice.
    void serve() noexcept;

    std::size_t permits_;
    bool described_;
    detail::intrusive_list<acquire_operation, semaphore> waiting_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/semaphore.ipp>
#endif
