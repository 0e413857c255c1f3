// Bodies of detail/speculation_sender.hpp.
#pragma once

#include <rdmacoro/protocol/detail/speculation_sender.hpp>

#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include <bit>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD speculation_sender::speculation_sender(rendezvous_context& context, unsigned first_kind,
                                                     std::uint64_t metrics::* sent) noexcept
    : piecewise_streams(context, slot_type_of<slot, owing_slot>), first_kind_(first_kind), sent_(sent) {}

RDMACORO_COLD bool speculation_sender::start(send_request& r, start_result& answer) noexcept {
    const std::uint32_t id = announced_for(r.tag_);
    if (id == none || r.from_.empty() || r.from_.size() > at(id).capacity) return false;
    std::byte raw[8];
    store_number(raw, std::uint64_t{r.from_.size()});
    const post_result posted = context_.post_copied(first_kind_ + speculation_claim, 0, id, raw);
    if (posted != post_result::done) {
        answer = start_result::wait_room;
        if (posted == post_result::failed) {
            r.finish(context_.why_failed());
            answer = start_result::begun;
        }
        return true;
    }
    slot& s = at(id);
    offered_ &= ~bit(id);
    s.now = state::claimed;
    s.revocable = true;
    s.request = &r;
    begun(r.tag_);
    ++context_.counts().announcements_used;
    ++(context_.counts().*sent_);
    context_.under_way();
    r.stream_ = claimed_stream | id;
    r.since_ = context_.owner().coarse_now().time_since_epoch().count();
    put(id, r.from_, 0, r.from_.size());
    answer = start_result::begun;
    return true;
}

RDMACORO_COLD void speculation_sender::cancel(send_request& r) noexcept {
    const std::uint32_t id = r.stream_ & ~claimed_stream;
    slot& s = at(id);
    if (s.now != state::claimed && s.now != state::refused) return;
    if (s.now == state::claimed) {
        if (!revokes_at_once()) return;  // ends soon, with its value
        static_cast<void>(stop(id));
    }
    over(id, finish_canceled);
}

RDMACORO_COLD delivery speculation_sender::announced(const wire_header& h,
                                                     std::span<const std::byte> payload) noexcept {
    announcement_body body;
    if (!body.load(payload) || !slots_.in_sequence(body.number) || body.seen > begun_ || body.seen < seen_)
        return context_.violation();
    if (!slots_.reach(body.number)) {
        context_.close(make_error_code(errc::no_resources));
        return delivery::taken;
    }
    slot& s = at(body.number);
    if (s.now != state::free || s.owed != 0) return context_.violation();
    seen_ = body.seen;
    s.withdrawable = true;
    s.revocable = false;
    if (begun_ - body.seen > remembered_sends) return delivery::taken;  // too late for its message
    std::uint32_t passed = 0;
    for (std::uint64_t i = body.seen; i < begun_; ++i) {
        if (tags_[static_cast<std::size_t>(i % remembered_sends)] == h.tag) ++passed;
    }
    if (passed > body.ahead) return delivery::taken;  // it crossed its message
    s.now = state::offered;
    s.tag = h.tag;
    s.ahead = body.ahead - passed;
    s.capacity = body.destination.bytes();
    s.transfer.there = body.destination;
    offered_ |= bit(body.number);
    return delivery::taken;
}

RDMACORO_COLD delivery speculation_sender::withdrawn(const wire_header& h,
                                                     std::span<const std::byte> payload) noexcept {
    if (h.tag >= slots_.size() || !payload.empty()) return context_.violation();
    const auto id = static_cast<std::uint32_t>(h.tag);
    slot& s = at(id);
    if (!std::exchange(s.withdrawable, false)) return context_.violation();
    if (s.now == state::offered) drop(id);
    owe(id, owes_withdrawn);
    return delivery::taken;
}

RDMACORO_COLD delivery speculation_sender::revoked(const wire_header& h,
                                                   std::span<const std::byte> payload) noexcept {
    if (h.tag >= slots_.size() || !payload.empty()) return context_.violation();
    const auto id = static_cast<std::uint32_t>(h.tag);
    slot& s = at(id);
    if (!std::exchange(s.revocable, false)) return context_.violation();
    switch (s.now) {
        case state::claimed:
            s.revoked = true;
            if (!revokes_at_once()) return delivery::taken;  // to its end
            static_cast<void>(stop(id));
            over(id, finish_revoked);
            return delivery::taken;
        case state::refused: over(id, finish_revoked); return delivery::taken;
        default: return delivery::taken;  // it crossed `finish`
    }
}

RDMACORO_COLD void speculation_sender::forget_offers() noexcept {
    while (offered_ != 0) drop(static_cast<std::uint32_t>(std::countr_zero(offered_)));
}

RDMACORO_COLD void speculation_sender::fail(std::error_code reason) noexcept {
    forget_offers();
    forget_transfers();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (send_request* r = std::exchange(s.request, nullptr)) context_.finish_send(*r, reason);
        s.revoked = s.withdrawable = s.revocable = false;
        s.now = state::free;
    }
}

RDMACORO_COLD bool speculation_sender::refused(std::uint32_t id) noexcept {
    return at(id).now == state::refused;
}

RDMACORO_COLD std::uint32_t speculation_sender::announced_for(tag_type tag) noexcept {
    std::uint32_t found = none;
    for (std::uint64_t left = offered_; left != 0; left &= left - 1) {
        const auto id = static_cast<std::uint32_t>(std::countr_zero(left));
        if (at(id).tag == tag && at(id).ahead == 0) found = id;
    }
    return found;
}

RDMACORO_COLD void speculation_sender::count_down(tag_type tag) noexcept {
    for (std::uint64_t left = offered_; left != 0; left &= left - 1) {
        const auto id = static_cast<std::uint32_t>(std::countr_zero(left));
        slot& s = at(id);
        if (s.tag != tag) continue;
        if (s.ahead == 0) {
            drop(id);  // its message went another way
        } else {
            --s.ahead;
        }
    }
}

RDMACORO_COLD void speculation_sender::drop(std::uint32_t id) noexcept {
    offered_ &= ~bit(id);
    at(id).now = state::free;
}

RDMACORO_COLD void speculation_sender::transferred(std::uint32_t id, std::error_code outcome) noexcept {
    if (!outcome) {
        over(id, finish_done);
    } else if (!is_refusal(outcome)) {
        end_link(outcome);
    } else if (at(id).revoked) {
        over(id, finish_revoked);
    } else {
        at(id).now = state::refused;
        await_reason(id);
    }
}

/// Nothing of this send is touched any more. It ends when `finish` is sent, which a goodbye must not overtake.
RDMACORO_COLD void speculation_sender::over(std::uint32_t id, std::uint8_t flags) noexcept {
    slot& s = at(id);
    s.now = state::ending;
    s.finish_flags = flags;
    s.revoked = false;
    owe(id, owes_finish);
}

RDMACORO_COLD post_result speculation_sender::send_owed(std::uint32_t id, std::uint8_t message) noexcept {
    if (message == owes_withdrawn)
        return context_.post_copied(first_kind_ + speculation_withdrawn, 0, id, {});
    return context_.post_copied(first_kind_ + speculation_finish, at(id).finish_flags, id, {});
}

RDMACORO_COLD void speculation_sender::owed_sent(std::uint32_t id, std::uint8_t message) noexcept {
    if (message != owes_finish) return;
    slot& s = at(id);
    s.now = state::free;
    send_request* const r = std::exchange(s.request, nullptr);
    context_.finish_send(*r, s.finish_flags == finish_canceled ? make_error_code(errc::canceled)
                                                               : std::error_code{});
}

}  // namespace rdmacoro::detail
