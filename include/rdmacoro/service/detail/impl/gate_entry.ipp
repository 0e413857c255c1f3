// How a call comes into a lane.
#pragma once

#include <rdmacoro/service/detail/gate_entry.hpp>

#include <new>

namespace rdmacoro::detail {

RDMACORO_DECL bool gate_entry::goes(gate_flow& to) noexcept {
    const gate_lane::put_result put = lane_->call(to, *of_);
    if (put == gate_lane::put_result::closed) of_->end_unbegun(of_->when_stopped());
    return put != gate_lane::put_result::full;
}
RDMACORO_DECL void gate_entry::enter(remote_base& of) noexcept {
    of_ = &of;
    gate_flow* flow = nullptr;
    try {
        flow = &lane_->flow(peer_);
    } catch (const std::bad_alloc&) {
        return of.end_unbegun(errc::no_resources);
    }
    if (of.has_owner()) {
        of.is_asked();
        if (flow->waiting.empty() && goes(*flow)) return;
        flow_ = flow;
        lane_->enlist(*flow, *this);
        return;
    }
    while (!goes(*flow)) static_cast<void>(lane_->wait_for_room(*flow, time_point::max()));
}
RDMACORO_COLD bool gate_entry::look(gate_wait& at) noexcept {
    gate_entry& self = static_cast<gate_entry&>(at);
    if (!self.goes(*self.flow_)) return false;
    self.flow_ = nullptr;
    return true;
}
RDMACORO_COLD bool gate_entry::leave(remote_base& of) noexcept {
    if (flow_ == nullptr) return false;
    lane_->forget(*this, flow_);
    flow_ = nullptr;
    of.end_unbegun(errc::canceled);
    return true;
}
RDMACORO_DECL bool gate_entry::wait_for_room(time_point until) {
    gate_flow& flow = lane_->flow(peer_);
    for (;;) {
        if (lane_->has_room(flow)) return true;
        if (lane_->port().closed()) return false;
        if (!lane_->wait_for_room(flow, until) && until != time_point::max() && monotonic_now() >= until)
            return lane_->has_room(flow);
    }
}

}  // namespace rdmacoro::detail
