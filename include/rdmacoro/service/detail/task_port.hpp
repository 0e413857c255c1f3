// task_port: where a scheduler takes tasks of other threads. remote_base: an operation that is such a task.
#pragma once

#include <rdmacoro/coro/detail/child.hpp>
#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <system_error>

namespace rdmacoro::detail {

class remote_base;

/// Tasks of other threads, on one scheduler. Outlives the scheduler where other threads still know it: they are refused then.
class task_port final : public child_owner {
public:
    explicit task_port(scheduler& owner) noexcept : owner_(owner) {}
    ~task_port() = default;

    /// Any thread: as `scheduler::post`. False: it is closed, and the node is not used.
    [[nodiscard]] bool post(posted_node& node) noexcept {
        posting_.fetch_add(1, std::memory_order_seq_cst);
        const bool open = !closed_.load(std::memory_order_seq_cst);
        if (open) owner_.post(node);
        posting_.fetch_sub(1, std::memory_order_release);
        return open;
    }
    /// Any thread: whether it is the scheduler's, see `scheduler::belongs_here`, and would wait for itself. False: or it is closed.
    [[nodiscard]] RDMACORO_DECL bool belongs_here() noexcept;
    /// Any thread.
    [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_seq_cst); }

    // The rest on the scheduler's thread.

    /// Nothing is posted any more, and what was posted has been called; all tasks are asked to stop.
    RDMACORO_DECL void close() noexcept;
    /// After `close`: runs the scheduler until all tasks have ended.
    RDMACORO_DECL void join() noexcept;
    void begin(child made, local_stop_token stop) noexcept {
        running_.fetch_add(1, std::memory_order_relaxed);
        made.begin_now({&owner_, stop});
    }
    [[nodiscard]] scheduler& owner() noexcept { return owner_; }
    [[nodiscard]] local_stop_source& stop() noexcept { return stop_; }
    /// Tasks that run. Any thread may ask.
    [[nodiscard]] std::size_t running() const noexcept { return running_.load(std::memory_order_relaxed); }

private:
    friend class remote_base;

    RDMACORO_DECL void child_failed(std::exception_ptr failure) noexcept override;
    RDMACORO_DECL std::coroutine_handle<> child_ended() noexcept override;

    scheduler& owner_;
    local_stop_source stop_;
    remote_base* unanswered_ = nullptr;  // have ended; that they are canceled is on its way
    bool flushed_ = false;               // nothing is on its way any more
    std::atomic<std::size_t> running_{0};
    alignas(64) std::atomic<std::uint32_t> posting_{0};
    std::atomic<bool> closed_{false};
};

inline constexpr wait_facts remote_task_facts{"a task on another thread", "it has not ended",
                                              next_actor::this_program};

/// A task on a port's scheduler, as an operation of the thread that asks: of a coroutine there, or of a thread without a scheduler.
///
/// `word_` holds the flags of both threads. The thread that sets the second of `ended` and `cancels` sees the first: an operation
/// that is canceled ends when the port has called `cancel_node_` or never will.
class remote_base : public operation_base, private parked_wait {
public:
    /// The thread waits until it has ended. False: `until` has passed.
    RDMACORO_DECL bool wait_until(time_point until) noexcept;

    // For its way to the port's thread.

    /// By a post, at once.
    RDMACORO_DECL void post() noexcept;
    /// It is about to be, on another way, on which `begin_there` will be called.
    void is_asked() noexcept {
        if (owner_ != nullptr) park(*this, remote_task_facts);
    }
    /// It does not begin there, and ends here.
    void end_unbegun(const status& why) noexcept {
        code_ = why;
        complete();
    }
    [[nodiscard]] status when_stopped() const noexcept { return when_stopped_; }
    /// On the port's thread.
    RDMACORO_DECL void begin_there() noexcept;

protected:
    /// `when_stopped`: its error where the port ends before it.
    remote_base(task_port& at, std::error_code when_stopped) noexcept
        : operation_base(nullptr), at_(&at), when_stopped_(when_stopped) {}
    remote_base(remote_base&& other) noexcept
        : operation_base(std::move(other)),
          parked_wait(),
          at_(other.at_),
          when_stopped_(other.when_stopped_),
          limit_(other.limit_) {}
    ~remote_base() = default;
    /// The operation is destroyed: a thread without a scheduler, which ends or is unwound, cancels it and waits.
    void abandon() noexcept {
        if (state_ == state::pending && owner_ == nullptr) [[unlikely]]
            cancel_and_wait();
    }

    /// Of the derived class: the task. Called on the port's thread.
    using maker = child (*)(child_owner& first, remote_base& self);

    // The asking thread.

    /// Before it goes there.
    RDMACORO_DECL void prepare(maker make) noexcept;
    RDMACORO_DECL void ask_to_stop() noexcept;
    /// Throws what the task ended with, with its type.
    [[noreturn]] RDMACORO_DECL void rethrow() const;

    // The port's thread.

    /// Of the exception that is being handled.
    RDMACORO_DECL void failed_with_current() noexcept;
    /// The task does not touch this any more.
    RDMACORO_DECL void ended() noexcept;
    /// The rest of its time, which is limited; 0: it is over.
    [[nodiscard]] duration left() const noexcept {
        const duration gone = monotonic_now() - asked_at_;
        return gone < limit_ ? limit_ - gone : duration::zero();
    }

    static constexpr duration no_limit = duration::max();

    task_port* at_;
    std::error_code when_stopped_;
    duration limit_ = no_limit;
    time_point asked_at_{};
    local_stop_source stop_;      // of the task; on the port's thread
    std::exception_ptr failure_;  // of the task
    status code_{};
    error_facts facts_{};

private:
    friend class task_port;
    static constexpr std::uint32_t waits = 1;    // a thread sleeps on the word
    static constexpr std::uint32_t ends = 2;     // the task has ended
    static constexpr std::uint32_t cancels = 4;  // the asking thread cancels
    static constexpr std::uint32_t told = 8;     // it may go

    struct node : posted_node {
        remote_base* self = nullptr;
    };
    RDMACORO_DECL static void begin_posted(posted_node& at) noexcept;
    RDMACORO_DECL static void cancel_there(posted_node& at) noexcept;
    RDMACORO_DECL static void end_here(posted_node& at) noexcept;
    RDMACORO_DECL void tell() noexcept;
    RDMACORO_DECL void cancel_and_wait() noexcept;

    maker make_ = nullptr;
    node begin_node_;
    node cancel_node_;
    node end_node_;
    std::atomic<std::uint32_t> word_{0};
    // The port's thread:
    remote_base* next_ = nullptr;
    bool cancel_arrived_ = false;
    bool unanswered_ = false;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/task_port.ipp>
#endif
