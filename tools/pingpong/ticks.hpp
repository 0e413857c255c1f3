// A clock that is cheap enough to be read at every message.
#pragma once

#include <cstdint>

#if !defined(__x86_64__)
#include <chrono>
#endif

namespace pingpong {

/// A reading; only differences mean something. The processor's time stamp counter where that counts evenly, elsewhere
/// nanoseconds.
using tick_count = std::uint64_t;

[[nodiscard, gnu::always_inline]] inline tick_count now_ticks() noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return static_cast<tick_count>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// What a tick is worth.
struct tick_facts {
    double ns = 1;  ///< length of one tick
    double step_ns =
        0;  ///< the least difference seen between two readings: no single time is finer, means are
};

/// Measured against the system's clock; takes some 20 ms. Throws `run_error` where the counter does not count evenly, as
/// on processors of before 2008.
[[nodiscard]] tick_facts calibrate_ticks();

}  // namespace pingpong
