// Messages about the wrong scheduler and the wrong thread.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/coro/detail/scheduler_list.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <cstddef>
#include <cstdio>

#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD int this_thread() noexcept {
    thread_local const int number = static_cast<int>(::gettid());
    return number;
}

/// "scheduler 0x7ffc2a10 (on thread 4711)".
struct scheduler_text {
    explicit scheduler_text(const scheduler* which) noexcept {
        const int thread = which != nullptr ? which->running_thread() : 0;
        if (which == nullptr) {
            std::snprintf(text, sizeof text, "no scheduler");
        } else if (thread != 0) {
            std::snprintf(text, sizeof text, "scheduler %p (on thread %d)", static_cast<const void*>(which),
                          thread);
        } else {
            std::snprintf(text, sizeof text, "scheduler %p (which does not run now)",
                          static_cast<const void*>(which));
        }
    }
    char text[80];
};

inline constexpr const char* how_to_reach = "use it in a coroutine of its own scheduler; other threads reach "
                                            "that by scheduler::post or a thread_channel";

RDMACORO_COLD void require_current(const scheduler& owner, const char* what) {
    const scheduler* const here = scheduler::current();
    if (here == &owner) return;
    char text[400];
    std::snprintf(text, sizeof text, "%s: it belongs to %s, and this is thread %d, which runs %s; %s", what,
                  scheduler_text(&owner).text, this_thread(), scheduler_text(here).text, how_to_reach);
    throw_error(errc::invalid_argument, text);
}

RDMACORO_COLD void require_thread_of(const scheduler* owner, const char* subject, const char* verb) noexcept {
    const int thread = owner != nullptr ? owner->running_thread() : 0;
    if (thread == 0 || thread == this_thread()) return;
    char text[400];
    std::snprintf(text, sizeof text, "%s %s %s on thread %d, which runs %s; %s", subject,
                  scheduler_text(owner).text, verb, this_thread(), scheduler_text(scheduler::current()).text,
                  how_to_reach);
    fatal(text);
}

RDMACORO_COLD void awaited_elsewhere(const scheduler& owner, const scheduler& other) noexcept {
    char text[400];
    std::snprintf(text, sizeof text,
                  "an operation of %s was awaited by a coroutine of another, %s, on thread %d; %s",
                  scheduler_text(&owner).text, scheduler_text(&other).text, this_thread(), how_to_reach);
    fatal(text);
}

RDMACORO_COLD void awaited_elsewhere_while_it_lives(const scheduler* owner, const scheduler& other) noexcept {
    if (all_schedulers.has(owner)) awaited_elsewhere(*owner, other);
}

RDMACORO_COLD void require_alive(const scheduler* owner, const char* subject) noexcept {
    if (all_schedulers.has(owner)) return;
    char text[200];
    std::snprintf(text, sizeof text, "%s was destroyed after its scheduler; destroy it before", subject);
    fatal(text);
}

RDMACORO_COLD void group_on_two(const scheduler& owner, const scheduler& other, const char* verb) noexcept {
    char text[400];
    std::snprintf(text, sizeof text,
                  "a task group with children on %s was %s on another, %s, on thread %d; make a group for "
                  "each scheduler",
                  scheduler_text(&owner).text, verb, scheduler_text(&other).text, this_thread());
    fatal(text);
}

RDMACORO_COLD void run_twice(const scheduler& which) noexcept {
    char text[300];
    std::snprintf(text, sizeof text,
                  "%s was run on thread %d at the same time; a scheduler has one thread: make one for each",
                  scheduler_text(&which).text, this_thread());
    fatal(text);
}

}  // namespace rdmacoro::detail
