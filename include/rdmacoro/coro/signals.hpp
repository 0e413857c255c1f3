// signals: the process's signals, awaited, and as a stop token.
#pragma once

#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/progress_source.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <stop_token>

#include <signal.h>

namespace rdmacoro {

/// Receives signals that are sent to the process, such as `SIGINT` and `SIGTERM`, in a scheduler's turns: no handler, no thread, one
/// `signalfd`. It parks with the scheduler, and notices a signal within about a millisecond while that is busy, or after the
/// coroutine that runs.
///
///     rc::scheduler on;
///     rc::signals quit(on, {SIGINT, SIGTERM});
///     on.run(serve(), quit.token());
///
/// - **Threads.** Its signals are blocked in the thread that makes it, and in threads that this one makes later. A thread that exists
///   already does not block them, and the kernel may hand them to it, with their former effect, which for most is the end of the process:
///   make this object first, before other threads and before transports of which the libraries have threads of their own (libfabric, verbs). The toolkit's own threads take no signal.
/// - **Child processes** inherit the blocked signals, also through `exec`: a child that should be ended by `SIGTERM` sets
///   `mask_before()`, by `sigprocmask` between `fork` and `exec`, or with `posix_spawnattr_setsigmask`.
/// - **Several schedulers** share one object: `token()` is for all threads, `next()` for coroutines of its own scheduler. Of two
///   objects for one signal either may get it.
/// - **Its end** unblocks what it blocked: it is destroyed by the thread that made it, last made first. A signal that comes at that time
///   has its former effect, unless others have come before: they have been answered, and the rest is dropped.
class signals final : private progress_source {
public:
    /// For coroutines of `on`, which polls it. Throws `errc::invalid_argument` for no signal, a number that is none, and those that cannot
    /// be received so (`SIGKILL`, `SIGSTOP`, `SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`); `errc::no_resources` when there is no descriptor left.
    signals(scheduler& on, std::initializer_list<int> numbers);
    /// For the scheduler that runs on this thread. Throws `errc::invalid_argument` when there is none.
    signals(std::initializer_list<int> numbers);
    signals(const signals&) = delete;
    signals& operator=(const signals&) = delete;
    /// A coroutine that still waits for a signal ends the process with a message.
    RDMACORO_DECL ~signals() override;

    /// The operation of `next`. Described at `next`.
    class next_operation final : public basic_operation<next_operation, int>,
                                 private detail::wait_node<signals> {
        using base = basic_operation<next_operation, int>;

    public:
        explicit next_operation(signals& of) noexcept : base(&of.on_), signals_(&of) {}

    private:
        friend base;
        friend class signals;
        friend class detail::intrusive_list<next_operation, signals>;

        void start() noexcept;
        void cancel() noexcept;
        void finish_canceled() noexcept { number_ = 0; }
        result<int> outcome() noexcept;

        signals* signals_;
        int number_ = 0;  // 0: canceled
    };

    /// Awaitable.
    /// Ends with the number of a signal that came and was not taken yet, also one that came before. The first signal counts as taken where a
    /// `token()` was asked for, which it has stopped, and no coroutine waited here when it came.
    /// Completes: when there is one.
    /// Buffers: none.
    /// Concurrency: any number may wait; each signal is for one of them, in the order of their waits. The kernel counts several `SIGTERM`
    /// as one until they are noticed.
    /// Errors: none but cancellation.
    /// Cancellation: ends at once with `errc::canceled`; no signal is lost. Beneath a task that `token()` has stopped, await
    /// `without_stop(quit.next())`.
    /// Example:
    ///     co_await without_stop(when_any(finish(), quit.next()));  // a second Ctrl-C cuts it short
    [[nodiscard]] next_operation next() noexcept { return next_operation(*this); }

    /// Is stopped when the first signal comes. For any thread, and for `scheduler::run` of any scheduler.
    [[nodiscard]] std::stop_token token() const noexcept {
        token_asked_for_.store(true, std::memory_order_release);
        return stop_.get_token();
    }

    /// The signals that this thread had blocked before.
    [[nodiscard]] const sigset_t& mask_before() const noexcept { return before_; }

private:
    static constexpr int most = 64;               // the largest number of a signal
    static constexpr std::size_t most_read = 32;  // at each look
    static constexpr std::uint32_t polls_between_looks = 1024;
    static constexpr duration most_between_looks = std::chrono::milliseconds(1);

    RDMACORO_DECL bool poll() noexcept override;
    [[nodiscard]] RDMACORO_DECL int wake_fd() noexcept override;
    RDMACORO_DECL void arm() noexcept override;
    RDMACORO_DECL void disarm() noexcept override;
    bool look() noexcept;
    void hand_out() noexcept;

    scheduler& on_;
    int fd_ = -1;
    sigset_t before_{};
    sigset_t blocked_{};  // by this object
    std::stop_source stop_;
    mutable std::atomic<bool> token_asked_for_{false};
    // The number of the first signal, which `came_` counts, where no coroutine waited for it; 0: none.
    std::uint32_t stopper_ = 0;
    std::array<std::uint32_t, most + 1> came_{};  // by number; not taken yet
    detail::intrusive_list<next_operation, signals> waiting_;
    std::uint32_t polls_ = 0;  // since the last look
    time_point looked_{};
    bool look_always_ = false;
    bool look_now_ = true;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/signals.ipp>
#endif
