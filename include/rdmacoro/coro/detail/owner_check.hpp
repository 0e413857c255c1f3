// Checks that an object of a scheduler is used on that scheduler and on its thread, and the messages where it is not.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

namespace rdmacoro {

class scheduler;

namespace detail {

/// The number of the calling thread, as `ps -L` shows it. Asks the kernel once for each thread.
[[nodiscard]] RDMACORO_DECL int this_thread() noexcept;

/// Throws `errc::invalid_argument` unless `owner` is the scheduler that runs on this thread. `what` begins the text, such as
/// "connect".
RDMACORO_DECL void require_current(const scheduler& owner, const char* what);

/// Returns unless `owner` runs on another thread at the moment: then it ends the process with a message, in which `subject` stands
/// before the scheduler and `verb` after it. nullptr: no scheduler yet.
RDMACORO_DECL void require_thread_of(const scheduler* owner, const char* subject = "an operation of",
                                     const char* verb = "was awaited") noexcept;

/// Ends the process with a message: a coroutine of `other` awaited an operation of `owner`.
[[noreturn]] RDMACORO_DECL void awaited_elsewhere(const scheduler& owner, const scheduler& other) noexcept;

/// As `awaited_elsewhere`; returns where there is no scheduler at `owner` any more.
RDMACORO_DECL void awaited_elsewhere_while_it_lives(const scheduler* owner, const scheduler& other) noexcept;

/// Ends the process with a message where there is no scheduler at `owner` any more: `subject`, such as "a gate", was to end before it.
RDMACORO_DECL void require_alive(const scheduler* owner, const char* subject) noexcept;

/// Ends the process with a message: a task group with children on `owner` was to have one on `other`, or be joined there. `verb` says
/// which, such as "joined".
[[noreturn]] RDMACORO_DECL void group_on_two(const scheduler& owner, const scheduler& other,
                                             const char* verb) noexcept;

/// Ends the process with a message: `which` was to run on this thread while it ran on another.
[[noreturn]] RDMACORO_DECL void run_twice(const scheduler& which) noexcept;

}  // namespace detail
}  // namespace rdmacoro
