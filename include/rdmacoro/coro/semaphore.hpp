// semaphore: a number of permits that coroutines of one scheduler share.
#pragma once

#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <cstddef>

namespace rdmacoro {

/// Permits, given out first come, first served: nobody overtakes, so that a large request is not starved by small ones.
/// Destroying it while somebody waits ends the process with a message. For one thread.
class semaphore {
public:
    explicit semaphore(std::size_t permits) noexcept : permits_(permits) {}
    semaphore(const semaphore&) = delete;
    semaphore& operator=(const semaphore&) = delete;
    ~semaphore() {
        if (!waiting_.empty()) detail::fatal("a semaphore was destroyed while somebody waits for it");
    }

    /// What `acquire` gives. Described at `acquire`.
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

        void start() noexcept {
            if (semaphore_->try_acquire(count_)) {
                complete();
            } else {
                semaphore_->waiting_.push_back(*this);
            }
        }
        void cancel() noexcept {
            this->unlink();
            finish_canceled();
            complete();
            semaphore_->serve();  // those behind may want less
        }
        void finish_canceled() noexcept { canceled_ = true; }
        result<> outcome() noexcept { return canceled_ ? result<>(errc::canceled) : result<>(); }

        semaphore* semaphore_;
        std::size_t count_;
        bool canceled_ = false;
    };

    /// Awaitable.
    /// Completes: when `count` permits are this caller's; at once when they are there and nobody waits before it.
    /// Buffers: none.
    /// Concurrency: any number may wait, in turn.
    /// Errors: none but cancellation. More permits than are ever released are waited for in vain.
    /// Cancellation: ends at once with `errc::canceled`, holding no permit; one that has its permits keeps them.
    /// Example:
    ///     co_await slots.acquire();
    ///     co_await peer.send(data);
    ///     slots.release();
    [[nodiscard]] acquire_operation acquire(std::size_t count = 1) noexcept {
        return acquire_operation(*this, count);
    }

    /// Takes `count` permits if they are there and nobody waits for some.
    [[nodiscard]] bool try_acquire(std::size_t count = 1) noexcept {
        if (!waiting_.empty() || count > permits_) return false;
        permits_ -= count;
        return true;
    }

    /// Gives `count` permits back, or adds them.
    void release(std::size_t count = 1) noexcept {
        permits_ += count;
        serve();
    }

    /// How many permits nobody has.
    [[nodiscard]] std::size_t available() const noexcept { return permits_; }

private:
    void serve() noexcept {
        for (acquire_operation* first = waiting_.front(); first != nullptr && first->count_ <= permits_;
             first = waiting_.front()) {
            permits_ -= first->count_;
            waiting_.pop_front();
            first->complete();
        }
    }

    std::size_t permits_;
    detail::intrusive_list<acquire_operation, semaphore> waiting_;
};

}  // namespace rdmacoro
