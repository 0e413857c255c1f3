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

/// How long a tick is, measured once against the system's clock; takes some 20 ms. Throws `run_error` where the counter
/// does not count evenly, as on processors of before 2008.
[[nodiscard]] double calibrate_ns_per_tick();

}  // namespace pingpong
