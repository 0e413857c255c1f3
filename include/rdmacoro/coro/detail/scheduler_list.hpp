// scheduler_list: all schedulers of the process, for a debugger that looks at a core file, and to tell one that is gone.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <atomic>

namespace rdmacoro {
class scheduler;
}

namespace rdmacoro::detail {

/// All schedulers, last made first.
class scheduler_list {
public:
    constexpr scheduler_list() noexcept = default;

    /// Called by its constructor.
    void add(scheduler& made) noexcept;
    /// Called by its destructor.
    void remove(scheduler& gone) noexcept;
    /// Whether there is one at that address.
    [[nodiscard]] bool has(const scheduler* asked) noexcept;
    /// Whether there is none.
    [[nodiscard]] bool empty() noexcept;

private:
    void lock() noexcept {
        while (busy_.test_and_set(std::memory_order_acquire)) busy_.wait(true, std::memory_order_relaxed);
    }
    void unlock() noexcept {
        busy_.clear(std::memory_order_release);
        busy_.notify_one();
    }

    std::atomic_flag busy_{};
    scheduler* first_ = nullptr;
};

/// `tools/gdb/rdmacoro.py` begins here.
inline constinit scheduler_list all_schedulers;

}  // namespace rdmacoro::detail

// Its bodies need the whole scheduler, which has them.
