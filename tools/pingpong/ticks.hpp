// A clock that is cheap enough to be read at every message.
#pragma once

#include <chrono>
#include <cstdint>

namespace pingpong {

/// A reading; only differences are meaningful. The processor's time stamp counter where that counts evenly, elsewhere
/// nanoseconds.
using tick_count = std::uint64_t;

/// Whether there is such a counter, and it counts evenly: not on processors of before 2008, nor on emulated ones.
extern const bool counter_is_even;

[[nodiscard, gnu::always_inline]] inline tick_count now_ticks() noexcept {
#if defined(__x86_64__)
    if (counter_is_even) [[likely]]
        return __builtin_ia32_rdtsc();
#endif
    return static_cast<tick_count>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// The length of a tick.
struct tick_facts {
    double ns = 1;  ///< length of one tick
    double step_ns =
        0;  ///< the least difference seen between two readings: no single time is finer, means are
};

/// Of the counter: measured against the system's clock; takes some 20 ms.
[[nodiscard]] tick_facts calibrate_ticks();

}  // namespace pingpong
