// How threads come and go, and how the scheduler's thread takes what they have put.
#pragma once

#include <rdmacoro/service/detail/gate_core.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD gate_lane& gate_core::enter() {
    const std::lock_guard locked(entering_);
    if (ends_) throw_error(errc::closed, "gate::pass: the gate has ended");
    for (const auto& one : lanes_) {
        if (!one->taken && one->all_back()) {
            std::uint32_t peer = 0;
            std::exception_ptr why;
            static_cast<void>(one->take_error(peer, why));
            one->taken = true;
            return *one;
        }
    }
    if (lanes_.size() >= options_.passes)
        throw_error(errc::no_resources,
                    "gate::pass: there are " + std::to_string(lanes_.size()) +
                        " passes, or what they have left is not sent (gate_options::passes)");
    lanes_.push_back(std::make_unique<gate_lane>(port, options_, shared_));
    gate_lane& made = *lanes_.back();
    made.news.gate = this;
    made.news.call = &take_news;
    return made;
}
RDMACORO_COLD void gate_core::leave(gate_lane& lane) noexcept {
    const std::lock_guard locked(entering_);
    lane.taken = false;
}
RDMACORO_COLD std::size_t gate_core::lanes() noexcept {
    const std::lock_guard locked(entering_);
    return lanes_.size();
}

RDMACORO_DECL void gate_core::take_news(posted_node& at) noexcept {
    auto& news = static_cast<gate_lane::news_node&>(at);
    gate_core& self = *static_cast<gate_core*>(news.gate);
    self.active_.push_back(*news.lane);
    self.serve_lanes(most_of_lane);  // more in the next turn, when those that have news are all known
    self.again();
}
RDMACORO_DECL void gate_core::again() noexcept {
    if (!std::exchange(posted_, true)) port.owner().post(again_);
}
RDMACORO_DECL void gate_core::serve_again(posted_node& at) noexcept {
    gate_core& self = *static_cast<again_node&>(at).core;
    self.posted_ = false;
    self.left_ = most_at_once;
    self.publish_due();
    self.active_.splice_back(self.emptied_);
    self.serve_lanes(most_at_once);
    if (!self.active_.empty() || !self.emptied_.empty()) self.again();
}

RDMACORO_DECL void gate_core::serve_lanes(unsigned budget) noexcept {
    scheduler& on = port.owner();
    const bool closed =
        port.closed();  // then threads see nothing of what comes back, and put no more than there is room for
    unsigned look = left_ < most_between_looks ? 0 : left_ - most_between_looks;
    time_point until{};
    while (budget != 0 && left_ != 0) {
        gate_lane* const lane = active_.pop_front();
        if (lane == nullptr) return;
        const unsigned most = std::min({most_of_lane, budget, left_});
        const unsigned count = serve(*lane, most);
        if (!closed) lane->publish_back();
        budget -= count;
        left_ -= count;
        if (count == most) {
            active_.push_back(*lane);
        } else if (count != 0) {
            emptied_.push_back(*lane);
        } else if (!lane->rest()) {
            active_.push_back(*lane);
        }
        if (left_ <= look) {
            // Few take long, such as those to nodes that have no connection yet: the others' turn comes in time all the same.
            constexpr duration slice = std::chrono::microseconds(50);
            const time_point now = on.now();
            if (until == time_point{}) {
                until = now + slice;
            } else if (now >= until) {
                left_ = 0;
            }
            look = left_ < most_between_looks ? 0 : left_ - most_between_looks;
        }
    }
}

RDMACORO_DECL void gate_core::ended(gate_lane& of) noexcept {
    --under_way_;
    if (std::exchange(of.due, true)) return;
    of.next_due = std::exchange(due_, &of);
    again();
}
RDMACORO_DECL void gate_core::publish_due() noexcept {
    while (gate_lane* const lane = due_) {
        due_ = lane->next_due;
        lane->due = false;
        lane->publish_back();
    }
}

RDMACORO_COLD void gate_core::end() noexcept {
    {
        const std::lock_guard locked(entering_);
        ends_ = true;
        for (const auto& one : lanes_) one->begin_end();
    }
    port.close();
    // A lane may rest though its thread was about to post when it closed. No other lanes are made any more.
    for (const auto& one : lanes_) {
        if (!one->linked() && one->has_some()) active_.push_back(*one);
    }
    // The entries that threads put until now.
    do {
        left_ = most_at_once;
        active_.splice_back(emptied_);
        serve_lanes(most_at_once);
    } while (!active_.empty() || !emptied_.empty());
    port.join();
    port.owner().run_until([this] { return under_way_ == 0; }, port.stop());
    if (std::exchange(posted_, false)) static_cast<void>(port.owner().withdraw(again_));
    const std::lock_guard locked(entering_);
    for (const auto& one : lanes_) {
        one->publish_back();
        one->wake_thread(true);
    }
}

}  // namespace rdmacoro::detail
