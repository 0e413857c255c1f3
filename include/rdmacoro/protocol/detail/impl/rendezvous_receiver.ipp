// Bodies of detail/rendezvous_receiver.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_receiver.hpp>

#include <rdmacoro/protocol/flow_control.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD rendezvous_receiver::rendezvous_receiver(rendezvous_context& context,
                                                       rendezvous_way way) noexcept
    : piecewise_streams(context, slot_type_of<slot, owing_slot>), way_(way) {}

RDMACORO_COLD delivery rendezvous_receiver::requested(const wire_header& h,
                                                      std::span<const std::byte> payload) noexcept {
    rendezvous_request_body body;
    if (h.flags > 1 || !body.load(payload) || !slots_.in_sequence(body.stream)) return context_.violation();
    if (!slots_.reach(body.stream)) {
        context_.close(make_error_code(errc::no_resources));
        return delivery::taken;
    }
    slot& s = at(body.stream);
    if (s.now != state::none || s.owed != 0) return context_.violation();
    const std::uint32_t cost = message_cost(0);
    receive_request* const r = context_.match(h.tag);
    if (r == nullptr && context_.connection().better_to_defer()) return delivery::defer;
    s.total = static_cast<std::size_t>(body.length);
    s.tag = h.tag;
    s.position = 0;
    s.turn = h.flags;
    s.leavable = true;
    s.copy = body.copy;
    s.transfer.there = body.source;
    if (r != nullptr) {
        if (context_.pass(cost)) {
            match(body.stream, *r);
        } else {
            context_.connection().fail_fill(*r, make_error_code(errc::protocol_violation));
        }
        return delivery::taken;
    }
    unexpected_message* const m = context_.store(h.tag, s.total, cost);
    if (m == nullptr) return delivery::taken;
    m->stream = body.stream;
    m->complete = false;
    s.now = state::stored;
    s.message = m;
    context_.announce(*m);
    return delivery::taken;
}

RDMACORO_COLD void rendezvous_receiver::matched(unexpected_message& m, receive_request& r) noexcept {
    const std::uint32_t id = m.stream;
    at(id).message = nullptr;
    context_.connection().free(m);
    match(id, r);
}

RDMACORO_COLD delivery rendezvous_receiver::sent(const wire_header& h,
                                                 std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || !payload.empty() || h.flags > 1) return context_.violation();
    if (s->now == state::awaiting) {
        if (h.flags == 1 || (s->owed & owes_ready) != 0) return context_.violation();
        s->regions.clear();
        s->position += s->round;
        if (s->position < s->total) {
            ask_for_put(static_cast<std::uint32_t>(h.tag));
        } else {
            s->leavable = false;
            context_.connection().end_fill(*clear(*s), s->tag, s->total);
        }
        return delivery::taken;
    }
    if (s->now != state::withdrawn) return context_.violation();
    if (h.flags == 0 && s->position + s->round < s->total) return delivery::taken;  // it crossed `withdraw`
    s->leavable = false;
    if (receive_request* r = clear(*s)) context_.connection().fail_fill(*r, make_error_code(errc::canceled));
    return delivery::taken;
}

RDMACORO_COLD delivery rendezvous_receiver::abandoned(const wire_header& h,
                                                      std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || !payload.empty() || !std::exchange(s->leavable, false)) return context_.violation();
    const auto id = static_cast<std::uint32_t>(h.tag);
    if (s->now == state::stored) {
        context_.connection().withdraw(*std::exchange(s->message, nullptr));
    } else if (s->now == state::getting && !stop_getting(id)) {
        s->abandoned = true;
        return delivery::taken;  // until the gets are over
    }
    const bool by_us = s->now == state::withdrawn || s->now == state::closing;
    let_go(id, by_us ? errc::canceled : errc::peer_canceled);
    return delivery::taken;
}

RDMACORO_COLD bool rendezvous_receiver::forget(receive_request& r) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (s.request != &r) continue;
        switch (s.now) {
            case state::getting:
                s.withdrawn = true;
                if (!stop_getting(id)) return false;
                break;
            case state::refused: break;
            case state::awaiting: return withdraw(id, r);
            default: return false;  // canceled before
        }
        static_cast<void>(clear(s));
        s.withdrawn = false;
        if (context_.touches_closed_memory()) {
            s.request = &r;
            s.now = state::closing;
            owe(id, owes_end);
            return false;
        }
        owe(id, owes_received);
        return true;
    }
    return true;
}

RDMACORO_COLD void rendezvous_receiver::fail(std::error_code reason) noexcept {
    forget_transfers();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        s.together.busy = false;
        if (s.now == state::stored) context_.connection().lose(*std::exchange(s.message, nullptr));
        if (receive_request* r = std::exchange(s.request, nullptr))
            context_.connection().fail_fill(*r, reason);
        static_cast<void>(clear(s));
        s.abandoned = s.withdrawn = false;
    }
}

RDMACORO_COLD rendezvous_receiver::slot* rendezvous_receiver::slot_of(const wire_header& h) noexcept {
    return h.tag < slots_.size() ? &at(static_cast<std::uint32_t>(h.tag)) : nullptr;
}

RDMACORO_COLD bool rendezvous_receiver::refused(std::uint32_t id) noexcept {
    return at(id).now == state::refused;
}

RDMACORO_COLD void rendezvous_receiver::match(std::uint32_t id, receive_request& r) noexcept {
    slot& s = at(id);
    s.now = state::none;
    if (!context_.connection().begin_fill(r, s.total, s.tag)) {
        owe(id, owes_received);
        return;
    }
    if (s.total == 0) {
        context_.connection().end_fill(r, s.tag, 0);
        owe(id, owes_received);
        return;
    }
    s.request = &r;
    const mutable_buffers into = context_.connection().destination(r, s.total);
    const std::size_t alignment = context_.link_capabilities().get_alignment;
    const bool gettable = s.transfer.there.count != 0;
    if (!gettable || !meets_alignment(s.transfer.there, alignment) ||
        !meets_alignment(into, s.total, alignment)) {
        if (gettable) ++context_.counts().switched_to_put;
        s.now = state::awaiting;
        ask_for_put(id);
        return;
    }
    s.now = state::getting;
    if (!get_together(id, into)) get(id, into, s.total);
}

/// Both sides copy at once, if they can.
RDMACORO_COLD bool rendezvous_receiver::get_together(std::uint32_t id, const mutable_buffers& into) noexcept {
    slot& s = at(id);
    if (way_ != rendezvous_way::together || s.copy == no_shared_copy || !into.contiguous() ||
        s.transfer.there.count != 1)
        return false;
    const std::span<std::byte> whole = into.front().first(s.total);
    s.together.self = this;
    s.together.id = id;
    s.together.busy = true;
    s.together.done = [](completion& c, std::error_code outcome) noexcept {
        auto& hook = static_cast<together_hook&>(c);
        hook.busy = false;
        hook.self->transferred(hook.id, outcome);
    };
    const remote_pieces::piece& p = s.transfer.there.at[0];
    // Sent first: the sender can begin while this side copies its first piece.
    region open = context_.expose(whole, access_rights::remote_write);
    if (open && s.regions.add(std::move(open))) {
        s.ready_flags = 1;
        owe(id, owes_ready);
    }
    const post_result answer =
        context_.copy_from_front(s.copy, {p.address, p.length, p.key}, whole, s.together);
    if (answer == post_result::posted) return true;
    s.together.busy = false;
    if (answer == post_result::done) {
        transferred(id, {});
        return true;
    }
    s.regions.clear();
    s.owed = 0;
    return false;
}

/// False: gets under way must end first.
RDMACORO_COLD bool rendezvous_receiver::stop_getting(std::uint32_t id) noexcept {
    slot& s = at(id);
    if (s.together.busy && revokes_at_once()) {
        s.together.busy = false;
        context_.revoke(s.together);
    }
    return stop(id) && !s.together.busy;
}

/// Nothing is being got any more.
RDMACORO_COLD void rendezvous_receiver::transferred(std::uint32_t id, std::error_code outcome) noexcept {
    slot& s = at(id);
    const bool by_peer = std::exchange(s.abandoned, false);
    const bool by_us = std::exchange(s.withdrawn, false);
    if (by_peer) {
        let_go(id, by_us ? errc::canceled : errc::peer_canceled);
    } else if (by_us) {
        context_.connection().fail_fill(*clear(s), make_error_code(errc::canceled));
        owe(id, owes_received);
    } else if (!outcome) {
        context_.connection().end_fill(*clear(s), s.tag, s.total);
        owe(id, owes_received);
    } else if (is_refusal(outcome)) {
        s.now = state::refused;
        await_reason(id);
    } else {
        end_link(outcome);
    }
}

/// Asks for the next bytes, as many as pieces can be named at a time.
RDMACORO_COLD void rendezvous_receiver::ask_for_put(std::uint32_t id) noexcept {
    slot& s = at(id);
    const mutable_buffers into = context_.connection().destination(*s.request, s.total);
    s.round = 0;
    s.ready_flags = 0;
    while (s.position + s.round < s.total && !s.regions.full()) {
        std::span<std::byte> piece = into.at_offset(s.position + s.round);
        if (piece.size() > s.total - s.position - s.round)
            piece = piece.first(s.total - s.position - s.round);
        region open = context_.expose(piece, access_rights::remote_write);
        if (!open || !s.regions.add(std::move(open))) break;
        s.round += piece.size();
    }
    if (s.round != 0) {
        owe(id, owes_ready);
        return;
    }
    context_.connection().fail_fill(*std::exchange(s.request, nullptr), make_error_code(errc::no_resources));
    if (s.position == 0) {
        s.now = state::none;
        owe(id, owes_received);
    } else {
        s.now = state::withdrawn;
        owe(id, owes_withdraw);
    }
}

/// The receive was canceled while the sender may be putting. False: its memory is not free yet.
RDMACORO_COLD bool rendezvous_receiver::withdraw(std::uint32_t id, receive_request& r) noexcept {
    slot& s = at(id);
    s.request = nullptr;
    if ((s.owed & owes_ready) != 0) {  // the sender never heard of it
        static_cast<void>(clear(s));
        if (s.position == 0) {
            owe(id, owes_received);
        } else {
            s.now = state::withdrawn;
            s.round = 0;
            owe(id, owes_withdraw);
        }
        return true;
    }
    s.now = state::withdrawn;
    owe(id, owes_withdraw);
    const bool said = (s.owed & owes_withdraw) == 0 && revokes_at_once();
    if (said && !context_.touches_closed_memory()) return true;
    s.request = &r;
    if (said) owe(id, owes_end);
    return false;
}

/// Closes the destination, and owes nothing. The answer is the receive that was being filled, if any.
RDMACORO_COLD receive_request* rendezvous_receiver::clear(slot& s) noexcept {
    s.regions.clear();
    s.owed = 0;
    s.now = state::none;
    return std::exchange(s.request, nullptr);
}

/// The sender has closed the source.
RDMACORO_COLD void rendezvous_receiver::let_go(std::uint32_t id, errc why) noexcept {
    if (receive_request* r = clear(at(id))) context_.connection().fail_fill(*r, make_error_code(why));
    owe(id, owes_gone);
}

RDMACORO_COLD post_result rendezvous_receiver::send_owed(std::uint32_t id, std::uint8_t message) noexcept {
    slot& s = at(id);
    if (message == owes_end) return context_.touches_closed_memory() ? post_result::retry : post_result::done;
    if (message == owes_ready) {
        rendezvous_ready_body body;
        body.offset = s.position;
        s.regions.name_in(body.destination);
        std::byte raw[rendezvous_ready_body::most_bytes];
        return context_.post_copied(rendezvous_ready, s.ready_flags, id, body.store(raw));
    }
    if (message == owes_withdraw) return context_.post_copied(rendezvous_withdraw, s.turn, id, {});
    return context_.post_copied(message == owes_received ? rendezvous_received : rendezvous_gone, 0, id, {});
}

RDMACORO_COLD void rendezvous_receiver::owed_sent(std::uint32_t id, std::uint8_t message) noexcept {
    slot& s = at(id);
    if (message == owes_withdraw && revokes_at_once()) {
        // Sent first: a sender that is refused the memory finds the reason behind it.
        s.regions.clear();
        if (s.request != nullptr) owe(id, owes_end);
    } else if (message == owes_end) {
        const bool closed = s.now == state::closing;
        if (closed) s.now = state::none;
        if (receive_request* r = std::exchange(s.request, nullptr))
            context_.connection().fail_fill(*r, make_error_code(errc::canceled));
        if (closed) owe(id, owes_received);
    }
}

}  // namespace rdmacoro::detail
