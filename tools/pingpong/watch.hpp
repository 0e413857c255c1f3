// Watches a run from a signal handler: shows how far it is, and ends the process when it does not move.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace pingpong {

/// One for a process, and of one of its threads: the one that expects something. The measuring code only stores a number, each thread
/// its own; a timer's signal handler reads it.
class watch {
public:
    /// Begins watching. `program` begins its messages. `stall_seconds`: without progress for so long the
    /// process prints that and ends with `status_failed`; 0: never. Progress is shown when stderr is a terminal and `show`.
    static void begin(const std::string& program, std::uint64_t stall_seconds, bool show);
    static void stop();

    /// Names the current activity, of this thread, and its number of steps.
    static void expect(const std::string& what, std::uint64_t steps);
    /// Steps done.
    [[gnu::always_inline]] static void reached(std::uint64_t step) noexcept {
        done_.store(step, std::memory_order_relaxed);
    }

    /// One step more is done.
    [[gnu::always_inline]] static void moved() noexcept { reached(done() + 1); }
    /// What this thread has reached.
    [[nodiscard]] static std::uint64_t done() noexcept { return done_.load(std::memory_order_relaxed); }

    /// Suspends the stall limit, for waits without a bound, such as for a client.
    static void rest() noexcept { expecting_.store(false, std::memory_order_relaxed); }

    /// Takes the progress line off the terminal.
    static void clear_line() noexcept;

private:
    static void look(int) noexcept;

    static inline constinit thread_local std::atomic<std::uint64_t> done_{0};
    static inline std::atomic<const std::atomic<std::uint64_t>*> watched_{nullptr};
    static inline std::atomic<bool> expecting_{false};
};

}  // namespace pingpong
