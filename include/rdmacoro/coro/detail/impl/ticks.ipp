// Whether the processor's counter can be trusted.
#pragma once

#include <rdmacoro/coro/detail/ticks.hpp>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace rdmacoro::detail {

RDMACORO_COLD std::uint64_t ticks_in_microseconds() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    // "Invariant TSC": it runs in all power states at one rate. Where it is not promised it may stand still.
    static const bool invariant = [] {
        unsigned a = 0;
        unsigned b = 0;
        unsigned c = 0;
        unsigned d = 0;
        return __get_cpuid(0x8000'0007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
    }();
    return invariant ? 8192 : 0;  // its rate is between 1 and 8 GHz
#elif defined(__aarch64__)
    std::uint64_t rate = 0;
    asm("mrs %0, cntfrq_el0" : "=r"(rate));
    return rate / 250'000;
#else
    return 0;
#endif
}

}  // namespace rdmacoro::detail
