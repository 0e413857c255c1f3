// The enumeration of all orders of events.
#pragma once

#include <rdmacoro/transport/sim/explorer.hpp>

#include <algorithm>
#include <charconv>
#include <functional>
#include <string>

namespace rdmacoro::detail::sim {

RDMACORO_DECL void explorer::follow(std::string_view schedule) {
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

RDMACORO_DECL void explorer::begin(std::uint64_t most_steps) noexcept {
    most_steps_ = most_steps;
    depth_ = 0;
    faults_left_ = faults_;
    blocked_ = false;
    steps_ = 0;
    made_.clear();
}

RDMACORO_DECL bool explorer::advance() {
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

RDMACORO_DECL std::string explorer::schedule() const {
    std::string text;
    for (const std::size_t choice : made_) {
        if (!text.empty()) text += '.';
        text += std::to_string(choice);
    }
    return text;
}

RDMACORO_DECL event* explorer::choose(std::span<event* const> enabled) noexcept {
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

RDMACORO_DECL unsigned explorer::choose(unsigned ways) noexcept {
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

RDMACORO_DECL explorer::point& explorer::push() {
    if (depth_ == stack_.size()) stack_.emplace_back();
    point& p = stack_[depth_++];
    p.ways = 0;
    return p;
}

RDMACORO_DECL std::size_t explorer::record(std::size_t choice, std::size_t of) {
    if (of > 1) made_.push_back(choice);
    return choice;
}

RDMACORO_DECL std::size_t explorer::next_given(std::size_t of) noexcept {
    if (of <= 1 || made_.size() >= given_.size()) return 0;
    return std::min(given_[made_.size()], of - 1);
}

RDMACORO_DECL std::size_t explorer::awake(const point& p, std::size_t from) noexcept {
    for (; from < p.enabled.size(); ++from) {
        const std::uint64_t key = p.enabled[from].key;
        if (std::none_of(p.asleep.begin(), p.asleep.end(),
                         [&](const named_event& e) { return e.key == key; }))
            break;
    }
    return from;
}

RDMACORO_DECL void explorer::inherit_sleep(point& p) {
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

}  // namespace rdmacoro::detail::sim
