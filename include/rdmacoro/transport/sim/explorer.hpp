// The enumeration of all orders of events: depth first, with sleep sets.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/sim/event.hpp>
#include <rdmacoro/transport/sim/random.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro::detail::sim {

/// Chooses for one execution after the other: every order of events once, or, with reduction, at least one of each class
/// of orders that differ only in the order of independent events (Godefroid, Partial-Order Methods for the Verification of
/// Concurrent Systems, 1996, sleep sets). Or by chance, or by a recorded schedule.
class explorer final : public chooser {
public:
    enum class mode { exhaustive, random, replay };

    explorer(mode how, bool reduces, unsigned faults) noexcept
        : mode_(how), reduces_(reduces), faults_(faults) {}

    void seed(std::uint64_t value) noexcept { random_ = sim_random(value); }

    /// `call` is called when an execution has too many steps.
    void when_endless(std::function<void()> call) { endless_ = std::move(call); }

    /// The next execution makes these choices, and then the first of each.
    void follow(std::string_view schedule);

    /// Before each execution, which may have so many steps.
    void begin(std::uint64_t most_steps) noexcept;

    /// After an execution: whether there is another to make. For `exhaustive`.
    [[nodiscard]] bool advance();

    /// Every choice of this execution that was one, in order.
    [[nodiscard]] std::string schedule() const;
    /// Whether all that could happen was known to lead where another execution has been.
    [[nodiscard]] bool blocked() const noexcept { return blocked_; }
    [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
    /// Whether a replay of the prefix met other events than before.
    [[nodiscard]] bool strayed() const noexcept { return strayed_; }

    RDMACORO_DECL event* choose(std::span<event* const> enabled) noexcept override;

    RDMACORO_DECL unsigned choose(unsigned ways) noexcept override;

private:
    struct named_event {
        std::uint64_t key;
        std::uint64_t nodes;
    };
    struct point {
        std::vector<named_event> enabled;
        std::vector<named_event> asleep;
        std::size_t chosen = 0;
        unsigned ways = 0;  ///< not 0: not events, but so many ways for one to go
    };

    point& push();
    std::size_t record(std::size_t choice, std::size_t of);
    std::size_t next_given(std::size_t of) noexcept;
    /// The first event of `p` from `from` on that does not sleep.
    [[nodiscard]] static std::size_t awake(const point& p, std::size_t from) noexcept;
    /// Events that slept before the last event, or were tried in its place, sleep on unless they depend on that event.
    void inherit_sleep(point& p);

    mode mode_;
    bool reduces_;
    unsigned faults_;
    unsigned faults_left_ = 0;
    bool blocked_ = false;
    bool strayed_ = false;
    std::uint64_t steps_ = 0;
    std::uint64_t most_steps_ = 0;
    std::function<void()> endless_;
    std::vector<point> stack_;  // of which `depth_` are in use; the others keep their memory
    std::size_t depth_ = 0;
    std::size_t prefix_ = 0;
    std::vector<std::size_t> made_;
    std::vector<std::size_t> given_;
    sim_random random_{1};
};

}  // namespace rdmacoro::detail::sim

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/explorer.ipp>
#endif
