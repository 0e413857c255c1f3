// How threads come and go, and how the scheduler's thread takes what they have put.
#pragma once

#include <rdmacoro/service/detail/gate_core.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD gate_lane& gate_core::enter() {
    const std::lock_guard locked(entering_);
    if (port.closed()) throw_error(errc::closed, "gate::pass: the gate has ended");
    for (const auto& one : lanes_) {
        if (!one->taken && one->all_back()) {
            std::uint32_t peer = 0;
            static_cast<void>(one->take_error(peer));
            one->taken = true;
            return *one;
        }
    }
    lanes_.push_back(std::make_unique<gate_lane>(port, options_));
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
    gate_lane& lane = *static_cast<gate_lane::news_node&>(at).lane;
    gate_core& self = *static_cast<gate_core*>(static_cast<gate_lane::news_node&>(at).gate);
    // Of each lane so many before the next one's turn.
    for (int left = 256;;) {
        gate_slot* const slot = lane.take();
        if (slot == nullptr) {
            if (lane.rest()) return;
            continue;
        }
        gate_flow& flow = *slot->flow;
        if (flow.target == nullptr) [[unlikely]] {
            gate_target*& known = self.targets_[flow.peer];
            if (known == nullptr) known = self.make_target(flow.peer);
            flow.target = known;
        }
        if (flow.target == nullptr) {
            lane.give_back(*slot, errc::no_resources);
        } else if (flow.target->over) {
            lane.give_back(*slot, flow.target->over);
        } else {
            flow.target->append(*slot);
        }
        if (--left == 0 && !self.port.closed()) {
            self.port.owner().post(at);
            return;
        }
    }
}

RDMACORO_COLD void gate_core::end() noexcept {
    port.close();
    port.join();
    const std::lock_guard locked(entering_);
    for (const auto& one : lanes_) one->wake_thread(true);
}

}  // namespace rdmacoro::detail
