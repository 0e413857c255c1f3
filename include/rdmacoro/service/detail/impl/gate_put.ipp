// How a coroutine waits for room in a lane.
#pragma once

#include <rdmacoro/service/detail/gate_put.hpp>

#include <new>

namespace rdmacoro::detail {

RDMACORO_DECL bool gate_put::goes() noexcept {
    switch (lane_->put(*flow_, from_, tag_)) {
        case gate_lane::put_result::done: return end({});
        case gate_lane::put_result::closed: return end(errc::closed);
        case gate_lane::put_result::full: break;
    }
    return false;
}
RDMACORO_DECL void gate_put::start() noexcept {
    try {
        flow_ = &lane_->flow(peer_);
    } catch (const std::bad_alloc&) {
        end(errc::no_resources);
        return;
    }
    if (flow_->waiting.empty() && goes()) return;
    static constexpr wait_facts facts{"a message into a gate", "there is no room", next_actor::this_program};
    park(*this, facts);
    lane_->enlist(*flow_, *this);
}
RDMACORO_COLD bool gate_put::look(gate_wait& at) noexcept { return static_cast<gate_put&>(at).goes(); }
RDMACORO_COLD void gate_put::cancel() noexcept {
    lane_->forget(*this, flow_);
    end(errc::canceled);
}

RDMACORO_DECL void gate_flush::start() noexcept {
    if (lane_->all_back()) {
        end({});
        return;
    }
    static constexpr wait_facts facts{"what was put into a gate", "it is not sent", next_actor::this_program};
    park(*this, facts);
    lane_->enlist(*this);
}
RDMACORO_COLD bool gate_flush::look(gate_wait& at) noexcept {
    gate_flush& self = static_cast<gate_flush&>(at);
    if (self.lane_->all_back()) return self.end({});
    return self.lane_->port().closed() && self.end(errc::closed);
}
RDMACORO_COLD void gate_flush::cancel() noexcept {
    lane_->forget(*this);
    end(errc::canceled);
}

}  // namespace rdmacoro::detail
