// thread_channel<T>: a bounded queue from any thread to one coroutine.
#pragma once

#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <optional>

namespace rdmacoro {

namespace detail {
inline constexpr wait_facts thread_channel_facts{"thread_channel receive", "the channel is empty",
                                                 next_actor::this_program};
/// To a power of two. Throws where no array of so many cells can exist: clang 19 leaves that to operator new, which a sanitizer ends the process in.
[[nodiscard]] inline std::size_t thread_channel_capacity(std::size_t asked, std::size_t cell_size) {
    constexpr std::size_t most_bytes = std::numeric_limits<std::ptrdiff_t>::max();
    if (asked > std::bit_floor(most_bytes / cell_size)) throw std::bad_array_new_length();
    return std::bit_ceil(asked < 2 ? 2 : asked);
}
}  // namespace detail

/// Values from any number of threads to one receiving coroutine of the scheduler `owner`, which is woken when it is parked.
/// At most `capacity` (rounded up to a power of two) values are queued; their memory is allocated by the constructor. Values
/// of one thread keep their order. The queue is D. Vyukov's bounded one with a sequence number in each cell.
///
/// The scheduler must outlive it. When it is destroyed no other thread may use it, and no coroutine may receive (that ends
/// the process with a message).
template <class T>
    requires std::is_nothrow_move_constructible_v<T>
class thread_channel {
public:
    /// `owner`: the scheduler that receives. `capacity` is rounded up to a power of two, 2 at least. Throws `std::bad_alloc` where there is no
    /// memory for so many.
    thread_channel(scheduler& owner, std::size_t capacity)
        : owner_(&owner),
          mask_(detail::thread_channel_capacity(capacity, sizeof(cell)) - 1),
          cells_(std::make_unique<cell[]>(mask_ + 1)) {
        for (std::size_t at = 0; at <= mask_; ++at) cells_[at].sequence.store(at, std::memory_order_relaxed);
        wake_.self = this;
        wake_.call = [](detail::posted_node& node) noexcept { static_cast<wake_node&>(node).self->woken(); };
    }
    thread_channel(const thread_channel&) = delete;
    thread_channel& operator=(const thread_channel&) = delete;
    ~thread_channel() {
        if (receiver_ != nullptr) detail::fatal("a thread_channel was destroyed while somebody receives");
        if (armed_ && !receiver_waits_.exchange(false, std::memory_order_acquire)) owner_->withdraw(wake_);
        while (try_receive()) {}
    }

    /// Sends without waiting. False, and `value` as it was, when it is full or closed. Any thread.
    [[nodiscard]] bool try_push(T&& value) noexcept { return put(value) == put_result::done; }

    /// Sends, and blocks the calling thread while it is full. False when it is closed. Any thread but the scheduler's own,
    /// which would wait for itself: the one that runs it, or while it does not run, as between the polls of another event loop, the one
    /// that ran it last. There it throws `errc::invalid_argument` instead of blocking. Before the scheduler first runs no thread is its own.
    bool push(T value) {
        for (;;) {
            const std::uint32_t seen = room_.load(std::memory_order_seq_cst);
            put_result tried = put(value);
            if (tried == put_result::full) {
                if (owner_->belongs_here())
                    detail::throw_error(errc::invalid_argument,
                                        "thread_channel::push: full, on the receiver's own thread");
                // Count this thread as waiting, try once more, wait: the receiver makes room and then looks at the count.
                pushers_wait_.fetch_add(1, std::memory_order_seq_cst);
                tried = put(value);
                if (tried == put_result::full) room_.wait(seen, std::memory_order_seq_cst);
                pushers_wait_.fetch_sub(1, std::memory_order_relaxed);
            }
            if (tried != put_result::full) return tried == put_result::done;
        }
    }

    /// Later pushes fail; queued values can still be received. Any thread.
    void close() noexcept {
        tail_.fetch_or(closed_bit, std::memory_order_seq_cst);
        wake_receiver();
        room_.fetch_add(1, std::memory_order_seq_cst);
        room_.notify_all();
    }

    /// The operation of `receive`. Described at `receive`.
    class receive_operation final : public basic_operation<receive_operation, T>,
                                    private detail::parked_wait {
        using base = basic_operation<receive_operation, T>;

    public:
        explicit receive_operation(thread_channel& from) noexcept : base(from.owner_), from_(&from) {}

        /// Only before it begins.
        receive_operation(receive_operation&& other) noexcept : base(std::move(other)), from_(other.from_) {}

    private:
        friend base;
        friend class thread_channel;

        void start() noexcept {
            if (from_->receiver_ != nullptr) detail::fatal("a thread_channel has one receiver at a time");
            from_->receiver_ = this;
            if (from_->serve()) return;
            this->park(*this, detail::thread_channel_facts);
            if (!from_->armed_) from_->arm();
        }
        void cancel() noexcept { end(errc::canceled); }
        void end(errc with) noexcept {
            from_->receiver_ = nullptr;
            ended_ = with;
            this->complete();
        }
        void finish_canceled() noexcept { ended_ = errc::canceled; }
        result<T> outcome() noexcept {
            if (value_) return *std::move(value_);
            return ended_;
        }

        thread_channel* from_;
        std::optional<T> value_;
        errc ended_ = errc::ok;
    };

    /// Awaitable.
    /// Completes: with the next value; at once when one is queued.
    /// Buffers: none.
    /// Concurrency: one at a time.
    /// Errors: `errc::closed` when it is closed and empty.
    /// Cancellation: ends at once with `errc::canceled`; no value is lost.
    /// Example:
    ///     while (auto job = co_await as_result(jobs.receive())) run(*job);
    [[nodiscard]] receive_operation receive() noexcept { return receive_operation(*this); }

    /// Receives without waiting; empty when the channel is. Only on the scheduler's thread.
    [[nodiscard]] std::optional<T> try_receive() noexcept {
        std::optional<T> taken;
        try_receive_into(taken);
        return taken;
    }

    /// Whether `close` was called, by any thread.
    [[nodiscard]] bool closed() const noexcept {
        return (tail_.load(std::memory_order_relaxed) & closed_bit) != 0;
    }
    /// Values that may wait to be received.
    [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

private:
    enum class put_result : unsigned char { done, full, closed };
    static constexpr std::size_t closed_bit = ~(~std::size_t{0} >> 1);

    struct cell {
        std::atomic<std::size_t> sequence{0};  // at: free for ticket `at`; at + 1: holds its value
        union {
            T value;
        };
        cell() noexcept {}
        ~cell() {}
    };
    struct wake_node : detail::posted_node {
        thread_channel* self = nullptr;
    };

    put_result put(T& value) noexcept {
        std::size_t ticket = tail_.load(std::memory_order_relaxed);
        for (;;) {
            if ((ticket & closed_bit) != 0) return put_result::closed;
            cell& to = cells_[ticket & mask_];
            const std::size_t sequence = to.sequence.load(std::memory_order_seq_cst);
            if (sequence == ticket) {
                if (tail_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
                    std::construct_at(&to.value, std::move(value));
                    to.sequence.store(ticket + 1, std::memory_order_seq_cst);
                    wake_receiver();
                    return put_result::done;
                }
            } else if (sequence < ticket) {
                return put_result::full;
            } else {
                ticket = tail_.load(std::memory_order_relaxed);
            }
        }
    }

    // The receiver sets `receiver_waits_` and then looks into the queue; a pusher publishes and then looks at the flag. All
    // four accesses are sequentially consistent, so one of them sees the other. The thread that clears the flag posts the
    // wake-up node, and the flag is set again only after the node has been called: it is never in two lists.
    void wake_receiver() noexcept {
        if (receiver_waits_.load(std::memory_order_seq_cst) &&
            receiver_waits_.exchange(false, std::memory_order_acq_rel))
            owner_->post(wake_);
    }
    void arm() noexcept {
        armed_ = true;
        receiver_waits_.store(true, std::memory_order_seq_cst);
        serve();
    }
    void woken() noexcept {
        armed_ = false;
        if (receiver_ != nullptr && !serve()) arm();
    }

    /// Into an empty one.
    void try_receive_into(std::optional<T>& taken) noexcept {
        cell& from = cells_[head_ & mask_];
        if (from.sequence.load(std::memory_order_seq_cst) != head_ + 1) return;
        taken.emplace(std::move(from.value));
        std::destroy_at(&from.value);
        from.sequence.store(head_ + mask_ + 1, std::memory_order_seq_cst);
        ++head_;
        if (pushers_wait_.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
            room_.fetch_add(1, std::memory_order_seq_cst);
            room_.notify_all();
        }
    }
    /// Ends the pending receive if it can.
    bool serve() noexcept {
        receive_operation& waiting = *receiver_;
        // Closed first: a value pushed before is then visible, or claimed by a pusher that will wake the receiver.
        const std::size_t tail = tail_.load(std::memory_order_seq_cst);
        try_receive_into(waiting.value_);
        if (waiting.value_) {
            waiting.end(errc::ok);
        } else if (tail == (head_ | closed_bit)) {
            waiting.end(errc::closed);
        } else {
            return false;
        }
        return true;
    }

    // The receiver's side.
    scheduler* owner_;
    std::size_t mask_;
    std::unique_ptr<cell[]> cells_;
    std::size_t head_ = 0;
    receive_operation* receiver_ = nullptr;
    bool armed_ = false;  // the flag is set, or the node is posted
    wake_node wake_;

    // The pushers' side, on lines of their own.
    alignas(64) std::atomic<std::size_t> tail_{0};
    alignas(64) std::atomic<bool> receiver_waits_{false};
    std::atomic<std::uint32_t> pushers_wait_{0};
    std::atomic<std::uint32_t> room_{0};
};

}  // namespace rdmacoro
