// The time, the chance and the order of a simulated network.
#pragma once

#include <rdmacoro/transport/sim/world.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

namespace rdmacoro {

RDMACORO_DECL sim_world::sim_world(const sim_world_options& options)
    : options_(options), random_(options.seed), keys_(~options.seed) {
    clock_.of = this;
    wake_.expired = [](detail::timer_node&) noexcept {};
}

RDMACORO_DECL void sim_world::violation(std::string text) {
    if (options_.violations_are_fatal) {
        for (const std::string& line : log_) std::fprintf(stderr, "  %s\n", line.c_str());
        detail::fatal(text.c_str());
    }
    note("VIOLATION: " + text);
    violations_.push_back(std::move(text));
}

RDMACORO_DECL void sim_world::attach(scheduler& owner) {
    if (nodes_ != 0 && owner_ != &owner) {
        detail::throw_error(errc::invalid_argument, "a sim_world's nodes share one scheduler");
    }
    if (nodes_++ == 0) {
        owner_ = &owner;
        owner.add_source(*this);
    }
}

RDMACORO_DECL void sim_world::detach() noexcept {
    if (--nodes_ != 0) return;
    owner_->remove_source(*this);
    owner_->remove_timer(wake_);
}

RDMACORO_DECL void sim_world::schedule(detail::sim::event& e, time_point at) {
    e.at = chooser_ != nullptr ? now_ : std::max(at, now_);
    queue_.insert(e);
}

RDMACORO_DECL duration sim_world::extra() noexcept {
    if (chooser_ != nullptr) return {};
    duration more{};
    if (options_.jitter.count() > 0) more += up_to(options_.jitter);
    if (random_.chance(options_.faults.delayed)) [[unlikely]]
        more += up_to(options_.faults.delay);
    return more;
}

RDMACORO_DECL void sim_world::note(std::string line) {
    if (options_.keeps_log) log_.push_back(std::to_string(now_.time_since_epoch().count()) + " ns  " + line);
}

RDMACORO_DECL void sim_world::touch(std::span<const std::byte> memory, const char* who) {
    if (finished_.overlaps(memory)) [[unlikely]]
        violation(std::string(who) + " touches memory that its owner has back");
}

RDMACORO_DECL duration sim_world::up_to(duration most) noexcept {
    return duration(static_cast<duration::rep>(random_.below(static_cast<std::uint64_t>(most.count()) + 1)));
}

RDMACORO_DECL bool sim_world::poll() noexcept {
    bool any = poll_links();
    if (chooser_ == nullptr && &owner_->time() == &clock_) {
        while (detail::sim::event* e = queue_.front()) {
            if (e->at > now_) break;
            fire(*e);
            any = true;
        }
        if (any) any |= poll_links();
        if (any || !owner_->has_ready()) {
            busy_ = 0;
        } else if (++busy_ == most_busy) {
            pass_time();
        }
        set_timer();
        return any;
    }
    if (chooser_ != nullptr) {
        // Every node does all it can between two events. A program that waits in a loop sees them all the same.
        if (queue_.empty() || (owner_->has_ready() && ++busy_ < most_busy)) return any;
        busy_ = 0;
        fire(choose());
        static_cast<void>(poll_links());
        return true;
    }
    // While coroutines run, one arrival, get or put a turn: a program that yields sees each stage.
    for (unsigned n = 0; n < events_in_a_poll && !queue_.empty(); ++n) {
        detail::sim::event& e = *queue_.front();
        const bool a_stage = detail::sim::event_key::kind(e.key) != detail::sim::event_kind::transmitted;
        fire(e);
        static_cast<void>(poll_links());
        any = true;
        if (a_stage && owner_->has_ready()) break;
    }
    return any;
}

RDMACORO_DECL bool sim_world::poll_links() noexcept {
    if (ready_.empty()) return false;
    bool any = false;
    detail::intrusive_list<detail::sim::pollable> now;
    now.splice_back(ready_);
    while (detail::sim::pollable* link = now.pop_front()) any |= link->poll(links_budget) != 0;
    return any;
}

RDMACORO_DECL void sim_world::fire(detail::sim::event& e) noexcept {
    queue_.remove(e);
    now_ = std::max(now_, e.at);
    ++fired_;
    for (const std::uint64_t word : {e.key, static_cast<std::uint64_t>(now_.time_since_epoch().count())}) {
        hash_ = (hash_ ^ word) * 0x100000001b3u;
        hash_ ^= hash_ >> 29;
    }
    if (options_.keeps_log) [[unlikely]]
        note(described(e.key));
    e.fire(e);
}

RDMACORO_DECL detail::sim::event& sim_world::choose() noexcept {
    enabled_.assign(queue_.all().begin(), queue_.all().end());
    std::sort(enabled_.begin(), enabled_.end(), [](const auto* a, const auto* b) { return a->key < b->key; });
    detail::sim::event* chosen_one = chooser_->choose(enabled_);
    return chosen_one != nullptr ? *chosen_one : *queue_.front();
}

RDMACORO_DECL void sim_world::pass_time() noexcept {
    busy_ = 0;
    duration step = std::chrono::microseconds(1);
    if (const detail::sim::event* e = queue_.front()) step = std::min(step, e->at - now_);
    now_ += step;
}

RDMACORO_DECL void sim_world::set_timer() {
    const detail::sim::event* e = queue_.front();
    if (e != nullptr && wake_.queued() && wake_.deadline == e->at) return;
    owner_->remove_timer(wake_);
    if (e == nullptr) return;
    wake_.deadline = e->at;
    owner_->add_timer(wake_);
}

RDMACORO_DECL std::string sim_world::described(std::uint64_t key) {
    using detail::sim::event_key;
    const auto kind = event_key::kind(key);
    return std::string(name_of(kind)) + (kind == detail::sim::event_kind::step ? " actor " : " lane ") +
           std::to_string(event_key::whose(key)) + " #" + std::to_string(event_key::number(key));
}

}  // namespace rdmacoro
