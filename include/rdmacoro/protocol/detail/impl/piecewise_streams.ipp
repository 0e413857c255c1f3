// Bodies of detail/piecewise_streams.hpp.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_streams.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD piecewise_streams::piecewise_streams(rendezvous_context& context,
                                                   const slot_type& type) noexcept
    : owed_messages(context.connection(), type),
      context_(context),
      refusal_(this, [](void* self) noexcept { static_cast<piecewise_streams*>(self)->grace_over(); }) {}

RDMACORO_DECL void piecewise_streams::writable() noexcept {
    send_remembered();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {  // sends that begin meanwhile add slots
        if (moving(id).stalled) go_on(id);
    }
}

RDMACORO_DECL void piecewise_streams::stepped(piecewise_transfer& transfer) noexcept {
    static_cast<piecewise_streams*>(transfer.owner)->go_on(transfer.name);
}

RDMACORO_DECL piecewise_slot& piecewise_streams::begin(std::uint32_t id) noexcept {
    piecewise_slot& s = moving(id);
    s.moving = true;
    s.transfer.owner = this;
    s.transfer.name = id;
    return s;
}

RDMACORO_DECL void piecewise_streams::get(std::uint32_t id, const mutable_buffers& into,
                                          std::size_t bytes) noexcept {
    begin(id).transfer.begin_get(into, 0, bytes, stepped);
    go_on(id);
}

RDMACORO_DECL void piecewise_streams::put(std::uint32_t id, const const_buffers& from, std::size_t offset,
                                          std::size_t bytes) noexcept {
    begin(id).transfer.begin_put(from, offset, bytes, stepped);
    go_on(id);
}

RDMACORO_DECL void piecewise_streams::go_on(std::uint32_t id) noexcept {
    piecewise_slot& s = moving(id);
    s.stalled = false;
    if (!s.moving) return;
    switch (s.transfer.pump(context_)) {
        case piecewise_transfer::state::stalled: s.stalled = true; return;
        case piecewise_transfer::state::moving: return;
        case piecewise_transfer::state::over: break;
    }
    s.moving = false;
    transferred(id, s.transfer.outcome());
}

RDMACORO_COLD bool piecewise_streams::stop(std::uint32_t id) noexcept {
    piecewise_slot& s = moving(id);
    s.stalled = false;
    if (revokes_at_once()) {
        s.transfer.revoke(context_);
    } else {
        s.transfer.stop();
    }
    s.moving = s.transfer.busy();
    return !s.moving;
}

RDMACORO_COLD void piecewise_streams::await_reason(std::uint32_t id) noexcept {
    const time_point until = deadline_after(context_.owner().now(), refusal_timer::grace);
    moving(id).refused_until = until;
    refusal_.start(context_.owner(), until);
}

RDMACORO_COLD void piecewise_streams::grace_over() noexcept {
    time_point first = time_point::max();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const time_point until = moving(id).refused_until;
        if (refused(id) && until < first) first = until;
    }
    if (first == time_point::max()) return;
    if (first <= context_.owner().now()) {
        context_.violation();
    } else {
        refusal_.start(context_.owner(), first);
    }
}

RDMACORO_COLD void piecewise_streams::end_link(std::error_code outcome) noexcept {
    context_.close(outcome == errc::closed ? context_.why_failed() : outcome);
}

RDMACORO_COLD void piecewise_streams::forget_transfers() noexcept {
    refusal_.stop();
    forget_owed();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        piecewise_slot& s = moving(id);
        s.transfer.forget();
        s.moving = s.stalled = false;
    }
}

}  // namespace rdmacoro::detail
