// The processor's counter of ticks: a cheap look at whether the clock is worth reading.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// The counter, which runs on at a constant rate between 1 MHz and 8 GHz; 0 where the processor has none that programs can read.
[[nodiscard, gnu::always_inline]] inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    std::uint64_t now;
    asm volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    return 0;
#endif
}

/// How many ticks pass in 1 to 8 µs, or 0 when the counter does not run at a constant rate: then only the clock tells the time.
[[nodiscard]] RDMACORO_DECL std::uint64_t ticks_in_microseconds() noexcept;

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/ticks.ipp>
#endif
