// Idle strategies: what a scheduler does when a turn moved nothing.
#pragma once

#include <rdmacoro/coro/clock.hpp>

#include <concepts>
#include <cstdint>

namespace rdmacoro::idle {

/// What to do now that nothing moved.
enum class action : std::uint8_t {
    spin,   ///< poll again at once
    yield,  ///< offer the core to others, then poll again
    park,   ///< sleep in the kernel until something wakes the scheduler
};

/// Semantic requirements:
///  1. `next(clock)` is called once for each turn that moved nothing and answers what to do; it does not sleep itself.
///  2. `progress()` is called after a turn that moved something, if `next` was called since the last time.
///  3. Both are quick: they stand between two polls.
///  4. It may have `bool may_park() const noexcept`: false promises that `next` never says park, which spares some transports
///     work. Without it, it may.
// clang-format off
template <class Strategy>
concept strategy = std::move_constructible<Strategy> && requires(Strategy s, clock& c) {
    { s.next(c) } noexcept -> std::same_as<action>;
    { s.progress() } noexcept -> std::same_as<void>;
};
// clang-format on

/// Never leaves the core: lowest latency, one core at 100 %.
struct spin {
    action next(clock&) noexcept { return action::spin; }
    void progress() noexcept {}
    [[nodiscard]] bool may_park() const noexcept { return false; }
};

/// Offers the core each turn: for more busy threads than cores.
struct yield {
    action next(clock&) noexcept { return action::yield; }
    void progress() noexcept {}
    [[nodiscard]] bool may_park() const noexcept { return false; }
};

/// Spins, then yields, then parks; any progress returns to spinning. After load adaptive thread parking in Nothaas et
/// al., "Ibdxnet: Leveraging InfiniBand in Highly Concurrent Java Applications" (2018), which polls for 100 ms and
/// yields for 1 s; parking here costs one system call and wakes by event, so far shorter spells do.
class adaptive {
public:
    static constexpr duration default_spin = std::chrono::milliseconds(1);
    static constexpr duration default_yield = std::chrono::milliseconds(4);

    explicit adaptive(duration spin_for = default_spin, duration yield_for = default_yield) noexcept
        : spin_for_(spin_for), yield_for_(yield_for) {}

    action next(clock& time) noexcept {
        // The clock is read every 32nd turn while spinning: reading it costs as much as a poll.
        if (rounds_++ % 32 != 0 && phase_ == action::spin) return action::spin;
        const time_point now = time.now();
        if (rounds_ == 1) since_ = now;
        const duration idle_for = now - since_;
        if (idle_for < spin_for_) {
            phase_ = action::spin;
        } else if (idle_for < spin_for_ + yield_for_) {
            phase_ = action::yield;
        } else {
            phase_ = action::park;
        }
        return phase_;
    }

    void progress() noexcept {
        rounds_ = 0;
        phase_ = action::spin;
    }

private:
    duration spin_for_;
    duration yield_for_;
    time_point since_{};
    std::uint32_t rounds_ = 0;
    action phase_ = action::spin;
};

}  // namespace rdmacoro::idle
