// Idle strategies: whether a scheduler spins, yields or parks after a turn without progress.
#pragma once

#include <rdmacoro/coro/clock.hpp>

#include <concepts>
#include <cstdint>

namespace rdmacoro::idle {

/// The scheduler's action after a turn without progress.
enum class action : std::uint8_t {
    spin,   ///< poll again at once
    yield,  ///< offer the core to others, then poll again
    park,   ///< sleep in the kernel until something wakes the scheduler
};

/// Semantic requirements:
///  1. `next(clock)` is called once for each turn without progress and returns the action; it does not sleep itself.
///  2. `progress()` is called after a turn with progress, if `next` was called since the last such call.
///  3. Both are quick: they stand between two polls.
///  4. It may have `void timer_expired() noexcept`, which is then called instead of `progress` when timers alone made progress:
///     they would have done so after a sleep, too.
///  5. It may have `bool may_park() const noexcept`: false promises that `next` never returns `park`, which spares some
///     transports work. A strategy without it is taken to park.
///  6. It may have `void wait_begins(time_point sleeps_until) noexcept`, which is called before the first `next` of a wait. If the
///     timer that is due first is that of a coroutine that sleeps, it is told the time; else `time_point::max()`.
// clang-format off
template <class Strategy>
concept strategy = std::move_constructible<Strategy> && requires(Strategy s, clock& c) {
    { s.next(c) } noexcept -> std::same_as<action>;
    { s.progress() } noexcept -> std::same_as<void>;
};
// clang-format on

/// Never leaves the core: lowest latency, one core at 100 %.
struct spin {
    /// Always `spin`.
    action next(clock&) noexcept { return action::spin; }
    /// Nothing: the strategy keeps no state.
    void progress() noexcept {}
    /// Never parks.
    [[nodiscard]] bool may_park() const noexcept { return false; }
};

/// Offers the core each turn: for more busy threads than cores.
struct yield {
    /// Always `yield`.
    action next(clock&) noexcept { return action::yield; }
    /// Nothing: the strategy keeps no state.
    void progress() noexcept {}
    /// Never parks.
    [[nodiscard]] bool may_park() const noexcept { return false; }
};

/// How often the kernel has taken the core from this thread for another one. Linux counts each offer of the core that another thread
/// takes, and no other offer.
[[nodiscard]] long involuntary_switches() noexcept;

/// Spins, then yields, then parks; for how long it spins and yields it learns from the last waits. A wait that lasts longer than
/// the whole time of polling, or that a timer ends, halves both times, down to a 128th; a wait that ends after the polling but within
/// that time makes them long enough for another one like it. It learns apart for waits during which a coroutine sleeps, by how long
/// that has still to sleep, and polls for longer then only after some short waits in a row. A coroutine that sleeps for milliseconds at a time thus costs about a hundredth of a core, also where it
/// waits for a message after each sleep, and a busy exchange of messages never parks. Where a wait ends soon after the core is offered,
/// or another thread took the offer, the core is shared: the next waits offer it after a 512th of the time of polling, so that
/// ranks which share cores take turns. Where an offer takes long, another program computes on the core, and would have a time slice of
/// milliseconds for each offer: the next waits park after a 16th of the time of polling, and the kernel wakes a parked thread at once.
/// It offers the core again after 8 such waits, after 16 if that took long, too, and so on to 1,024. After load adaptive thread
/// parking in Nothaas et al., "Ibdxnet: Leveraging InfiniBand in Highly Concurrent Java Applications" (2018), which polls for 100 ms
/// and yields for 1 s; parking here costs one system call and wakes by event, so far shorter times suffice.
class adaptive {
public:
    /// Time of polling after the last progress.
    static constexpr duration default_spin = std::chrono::microseconds(500);
    /// Time of yielding after that.
    static constexpr duration default_yield = std::chrono::milliseconds(4);

    /// Polls for at most `spin_for`, yields for at most `yield_for`, then parks. Tests replace `switches`.
    explicit adaptive(duration spin_for = default_spin, duration yield_for = default_yield,
                      long (*switches)() noexcept = &involuntary_switches) noexcept
        : spin_for_(at_least_none(spin_for)),
          yield_for_(at_least_none(yield_for)),
          switches_of_thread_(switches) {}

    /// A wait begins, during which a coroutine sleeps until then, or none.
    void wait_begins(time_point sleeps_until) noexcept { sleeps_until_ = sleeps_until; }
    /// The action after a turn without progress.
    action next(clock& time) noexcept;
    /// A turn made progress: begins again with polling.
    void progress() noexcept;
    /// The same when only a timer expired: that is no reason to poll.
    void timer_expired() noexcept;

private:
    static constexpr unsigned most_halvings = 7;
    // Parts of the time of polling: before the core is offered early, before parking beside a computation.
    static constexpr unsigned early_part = 512;
    static constexpr unsigned shared_part = 16;
    // A wait counts as ended by so few offers, where they took no more than that part of the time of polling.
    static constexpr unsigned few_offers = 2;
    static constexpr unsigned soon_part = 2;
    /// A negative time is none; a year is as good as any longer one, and two can be added.
    [[nodiscard]] static constexpr duration at_least_none(duration time) noexcept {
        constexpr duration year = std::chrono::hours(24 * 365);
        return time < duration::zero() ? duration::zero() : time > year ? year : time;
    }
    static constexpr duration long_offer = 4 * default_spin;
    static constexpr unsigned fewest_without = 8;  // waits without an offer, after one that took long
    static constexpr unsigned most_without = 1024;
    // Kinds of waits that it learns for apart: a sleep ends within the time of polling, within twice that, and so on, or later or never.
    static constexpr unsigned kinds = 8;
    static constexpr std::uint8_t several_short =
        4;  // waits in a row, after which it polls through those of a sleep's kind

    void begin(clock& time, time_point now) noexcept;
    void begin_again() noexcept {
        rounds_ = 0;
        offers_ = 0;
        phase_ = action::spin;
        sleeps_until_ = time_point::max();
    }
    void offer_ended(time_point now) noexcept;
    /// Whether another thread ran on this thread's core since the last such question.
    [[nodiscard]] bool was_switched() noexcept;
    /// Of both times, in a wait of this kind.
    [[nodiscard]] std::uint8_t& halvings() noexcept { return halvings_[kind_]; }
    void poll_less() noexcept {
        short_waits_[kind_] = 0;
        if (halvings() < most_halvings) ++halvings();
    }
    /// Whether waits of this kind are short more often than not, now that one more was. Where a coroutine sleeps, its sleeps are of
    /// the same kinds as waits for messages beside them, and polling through one sleep costs as much as many messages gain.
    [[nodiscard]] bool shorter_than_sleeps() noexcept {
        if (kind_ == kinds - 1) return true;
        if (short_waits_[kind_] < several_short) ++short_waits_[kind_];
        return short_waits_[kind_] == several_short;
    }

    duration spin_for_;
    duration yield_for_;
    long (*switches_of_thread_)() noexcept;
    long switches_ = -1;     // when last asked for; -1: never
    clock* time_ = nullptr;  // of the wait
    time_point since_{};
    std::uint32_t rounds_ = 0;
    time_point sleeps_until_ = time_point::max();
    std::uint8_t halvings_[kinds] = {};
    std::uint8_t short_waits_[kinds] = {};  // of each kind, that polling would have met, since a long one
    unsigned kind_ = kinds - 1;             // of the wait
    unsigned offers_ = 0;                   // of the core, in this wait
    time_point offered_{};                  // the first of them
    time_point last_offered_{};
    unsigned without_offers_ = 0;                    // so many waits park where they would offer the core
    unsigned next_without_offers_ = fewest_without;  // after the next offer that takes long
    bool offers_early_ = false;
    action phase_ = action::spin;
};

}  // namespace rdmacoro::idle

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/idle.ipp>
#endif
