// Futexes: the standard's own wait has no limit of time.
#pragma once

#include <rdmacoro/service/detail/thread_wait.hpp>

#include <algorithm>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rdmacoro::detail {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

RDMACORO_COLD void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                                   time_point until) noexcept {
    std::timespec limit{};
    const bool limited = until != time_point::max();
    if (limited) {
        const auto left = std::max((until - monotonic_now()).count(), duration::rep{0});
        limit.tv_sec = static_cast<std::time_t>(left / 1'000'000'000);
        limit.tv_nsec = static_cast<long>(left % 1'000'000'000);
    }
    ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, limited ? &limit : nullptr, nullptr, 0);
}

RDMACORO_COLD void wake_threads(const std::atomic<std::uint32_t>& word) noexcept {
    ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
}

}  // namespace rdmacoro::detail
