// How all orders of events are enumerated: depth first, with sleep sets.
#pragma once

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
/// Concurrent Systems, 1996, sleep sets). Or by chance, or as a recorded schedule says.
class explorer final : public chooser {
public:
    enum class mode { exhaustive, random, replay };

    explorer(mode how, bool reduces, unsigned faults) noexcept
        : mode_(how), reduces_(reduces), faults_(faults) {}

    void seed(std::uint64_t value) noexcept { random_ = sim_random(value); }

    /// What to do when an execution has too many steps.
    void when_endless(std::function<void()> call) { endless_ = std::move(call); }

    /// The next execution makes these choices, and then the first of each.
    void follow(std::string_view schedule) {
        given_.clear();
        const char* at = schedule.data();
        const char* const end = at + schedule.size();
        while (at != end) {
            std::size_t value = 0;
            const auto [after, failure] = std::from_chars(at, end, value);
            given_.push_back(failure == std::errc{} ? value : 0);
            at = after == at ? at + 1 : after;
            if (at != end) ++at;  // the point
        }
    }

    /// Before each execution, which may have so many steps.
    void begin(std::uint64_t most_steps) noexcept {
        most_steps_ = most_steps;
        depth_ = 0;
        faults_left_ = faults_;
        blocked_ = false;
        steps_ = 0;
        made_.clear();
    }

    /// After an execution: whether there is another to make. For `exhaustive`.
    [[nodiscard]] bool advance() {
        while (depth_ > 0) {
            point& p = stack_[depth_ - 1];
            if (p.ways != 0) {
                if (++p.chosen < p.ways) break;
            } else {
                if (reduces_) p.asleep.push_back(p.enabled[p.chosen]);
                const std::size_t next = awake(p, p.chosen + 1);
                if (next < p.enabled.size()) {
                    p.chosen = next;
                    break;
                }
            }
            --depth_;
        }
        prefix_ = depth_;
        return depth_ > 0;
    }

    /// Every choice of this execution that was one, in order.
    [[nodiscard]] std::string schedule() const {
        std::string text;
        for (const std::size_t choice : made_) {
            if (!text.empty()) text += '.';
            text += std::to_string(choice);
        }
        return text;
    }
    /// Whether all that could happen was known to lead where another execution has been.
    [[nodiscard]] bool blocked() const noexcept { return blocked_; }
    [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
    /// Whether a replay of the prefix met other events than before.
    [[nodiscard]] bool strayed() const noexcept { return strayed_; }

    event* choose(std::span<event* const> enabled) noexcept override {
        if (++steps_ == most_steps_) endless_();
        if (blocked_ || steps_ >= most_steps_) return nullptr;
        if (mode_ == mode::random) return enabled[record(random_.below(enabled.size()), enabled.size())];
        if (mode_ == mode::replay) return enabled[record(next_given(enabled.size()), enabled.size())];
        if (depth_ < prefix_) {
            const point& p = stack_[depth_++];
            if (p.enabled.size() != enabled.size() || enabled[p.chosen]->key != p.enabled[p.chosen].key) {
                strayed_ = blocked_ = true;
                return nullptr;
            }
            return enabled[record(p.chosen, enabled.size())];
        }
        point& p = push();
        p.enabled.clear();
        for (const event* e : enabled) p.enabled.push_back({e->key, e->nodes});
        p.asleep.clear();
        if (reduces_) inherit_sleep(p);
        p.chosen = awake(p, 0);
        if (p.chosen == enabled.size()) {
            --depth_;
            blocked_ = true;
            return nullptr;
        }
        return enabled[record(p.chosen, enabled.size())];
    }

    unsigned choose(unsigned ways) noexcept override {
        if (blocked_ || faults_left_ == 0) return 0;
        std::size_t chosen = 0;
        if (mode_ == mode::random) {
            chosen = random_.below(8) == 0 ? random_.below(ways) : 0;
        } else if (mode_ == mode::replay) {
            chosen = next_given(ways);
        } else if (depth_ < prefix_) {
            chosen = stack_[depth_++].chosen;
        } else {
            point& p = push();
            p.ways = ways;
            p.chosen = 0;
        }
        if (chosen != 0) --faults_left_;
        return static_cast<unsigned>(record(chosen, ways));
    }

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

    point& push() {
        if (depth_ == stack_.size()) stack_.emplace_back();
        point& p = stack_[depth_++];
        p.ways = 0;
        return p;
    }
    std::size_t record(std::size_t choice, std::size_t of) {
        if (of > 1) made_.push_back(choice);
        return choice;
    }
    std::size_t next_given(std::size_t of) noexcept {
        if (of <= 1 || made_.size() >= given_.size()) return 0;
        return std::min(given_[made_.size()], of - 1);
    }
    /// The first event of `p` from `from` on that does not sleep.
    [[nodiscard]] static std::size_t awake(const point& p, std::size_t from) noexcept {
        for (; from < p.enabled.size(); ++from) {
            const std::uint64_t key = p.enabled[from].key;
            if (std::none_of(p.asleep.begin(), p.asleep.end(),
                             [&](const named_event& e) { return e.key == key; }))
                break;
        }
        return from;
    }
    /// What slept before the last event, or was tried in its place, sleeps on unless that event has to do with it.
    void inherit_sleep(point& p) {
        std::size_t last = depth_ - 1;
        do {
            if (last == 0) return;
            --last;
        } while (stack_[last].ways != 0);
        const point& before = stack_[last];
        const std::uint64_t nodes = before.enabled[before.chosen].nodes;
        for (const named_event& e : before.asleep) {
            if (independent(e.nodes, nodes)) p.asleep.push_back(e);
        }
    }

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
