// thread_wait: a thread without a scheduler sleeps until another one changes a word.
#pragma once

#include <rdmacoro/coro/clock.hpp>

#include <atomic>
#include <cstdint>

namespace rdmacoro::detail {

/// Sleeps while `word` is `seen`, until `wake_threads` of it, and no longer than `until`; `time_point::max()`: without a limit. May return
/// early. No point at which a thread can be canceled.
RDMACORO_DECL void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                                   time_point until) noexcept;
/// Wakes all threads that sleep on the word. It is not read: it may be gone already.
RDMACORO_DECL void wake_threads(const std::atomic<std::uint32_t>& word) noexcept;

/// The clock of limits in threads without a scheduler.
[[nodiscard]] inline time_point monotonic_now() noexcept { return monotonic_clock::instance().now(); }

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/thread_wait.ipp>
#endif
