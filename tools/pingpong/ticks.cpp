#include "ticks.hpp"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pingpong {

namespace {

struct reading {
    std::chrono::steady_clock::time_point time;
    tick_count ticks;
};

/// Both clocks at one moment: of several tries that with the least time between two readings of the counter.
reading read_both() {
    reading best{};
    tick_count least = ~tick_count{0};
    for (int i = 0; i < 64; ++i) {
        const tick_count before = now_ticks();
        const auto time = std::chrono::steady_clock::now();
        const tick_count after = now_ticks();
        if (after - before >= least) continue;
        least = after - before;
        best = {time, before + (after - before) / 2};
    }
    return best;
}

bool counts_evenly() noexcept {
#if defined(__x86_64__)
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
    return false;
#endif
}

double ns_per_tick() {
    if (!counter_is_even) {
        using period = std::chrono::steady_clock::period;
        return 1e9 * static_cast<double>(period::num) / static_cast<double>(period::den);
    }
    const reading from = read_both();
    while (std::chrono::steady_clock::now() - from.time < std::chrono::milliseconds(20)) {}
    const reading to = read_both();
    const std::chrono::duration<double, std::nano> passed = to.time - from.time;
    return passed.count() / static_cast<double>(to.ticks - from.ticks);
}

tick_count least_step() {
    tick_count least = ~tick_count{0};
    tick_count last = now_ticks();
    for (int i = 0; i < 100'000; ++i) {
        const tick_count now = now_ticks();
        if (now != last) least = std::min(least, now - last);
        last = now;
    }
    return least;
}

}  // namespace

const bool counter_is_even = counts_evenly();

tick_facts calibrate_ticks() {
    const double ns = ns_per_tick();
    return {.ns = ns, .step_ns = ns * static_cast<double>(least_step())};
}

}  // namespace pingpong
