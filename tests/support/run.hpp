#pragma once

// Runs a coroutine in a test: in virtual time, so that hours pass in microseconds, and with an end.

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

#include <chrono>

namespace rdmacoro::test {

/// How long a whole test case may take, with a sanitizer and on a busy machine.
inline constexpr duration case_limit = std::chrono::seconds(100);

/// Offers the core each turn, as `idle::yield`; ends the process when nothing has moved for 20 seconds of real time: a
/// test that waits in vain fails with a message.
class impatient {
public:
    idle::action next(clock&) noexcept {
        if (idle_turns_++ == 0) since_ = std::chrono::steady_clock::now();
        if (idle_turns_ % 1024 == 0 && std::chrono::steady_clock::now() - since_ > std::chrono::seconds(20))
            rdmacoro::detail::fatal(
                "nothing has moved for 20 s: the test waits for something that never comes");
        return idle::action::yield;
    }
    void progress() noexcept { idle_turns_ = 0; }

private:
    std::chrono::steady_clock::time_point since_{};
    unsigned idle_turns_ = 0;
};

/// A scheduler whose time stands still while anything is left to do and then jumps to the next timer.
struct virtual_time {
    manual_clock time;
    rdmacoro::scheduler on{impatient{}, time};

    template <class T>
    T run(task<T> main) {
        return on.run(std::move(main));
    }
    [[nodiscard]] duration now() noexcept { return time.now().time_since_epoch(); }
};

}  // namespace rdmacoro::test
