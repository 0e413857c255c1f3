// Bodies of detail/rendezvous_sender.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_sender.hpp>

#include <rdmacoro/protocol/flow_control.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD rendezvous_sender::rendezvous_sender(rendezvous_context& context, rendezvous_way way,
                                                   std::uint64_t metrics::* sent) noexcept
    : piecewise_streams(context, slot_type_of<slot, owing_slot>), way_(way), sent_(sent) {}

RDMACORO_COLD start_result rendezvous_sender::start(send_request& r) noexcept {
    if (slots_.exhausted(most_streams)) return start_result::wait_peer;
    const std::uint32_t cost = message_cost(0);
    if (!context_.credits().take(cost)) return start_result::wait_credit;
    const std::uint32_t id = slots_.take();
    if (id == slot_table::none) {
        context_.credits().untake(cost);
        r.finish(errc::no_resources);
        return start_result::begun;
    }
    slot& s = at(id);
    rendezvous_request_body body;
    body.stream = id;
    body.length = r.from_.size();
    if (way_ != rendezvous_way::put) expose(r, s, body);
    std::byte raw[rendezvous_request_body::most_bytes];
    const post_result posted = context_.post_copied(rendezvous_request, s.turn, r.tag_, body.store(raw));
    if (posted != post_result::done) {
        release(s);
        slots_.give(id);
        if (posted == post_result::failed) {
            r.finish(context_.why_failed());
            return start_result::begun;
        }
        context_.credits().untake(cost);
        return start_result::wait_room;
    }
    r.stream_ = id;
    r.sent_ = 0;
    r.since_ = context_.owner().coarse_now().time_since_epoch().count();
    s.request = &r;
    s.now = state::requested;
    ++(context_.counts().*sent_);
    context_.under_way();
    return start_result::begun;
}

RDMACORO_COLD void rendezvous_sender::cancel(send_request& r) noexcept {
    slot& s = at(r.stream_);
    if (s.now != state::requested && s.now != state::putting && s.now != state::refused) return;
    if (s.now == state::putting) {
        if (!revokes_at_once()) return;  // ends soon, with its value
        static_cast<void>(stop(r.stream_));
    }
    s.now = state::leaving;
    owe(r.stream_, owes_abandon);
}

RDMACORO_COLD delivery rendezvous_sender::ready(const wire_header& h,
                                                std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    rendezvous_ready_body body;
    if (s == nullptr || s->now == state::free || !body.load(payload)) return context_.violation();
    if (s->now == state::leaving || s->now == state::left) return delivery::taken;
    if (s->now != state::requested) return context_.violation();
    if (h.flags != 0) return help(*s, h, body);
    send_request& r = *s->request;
    const std::uint64_t bytes = body.destination.bytes();
    if (s->copy != no_shared_copy && s->helping) return context_.violation();
    if (body.offset != r.sent_ || bytes == 0 || bytes > r.from_.size() - r.sent_) return context_.violation();
    if (!s->regions.empty() && r.sent_ == 0) ++context_.counts().switched_to_put;
    s->now = state::putting;
    s->round = static_cast<std::size_t>(bytes);
    s->transfer.there = body.destination;
    put(static_cast<std::uint32_t>(h.tag), r.from_, r.sent_, s->round);
    return delivery::taken;
}

RDMACORO_COLD delivery rendezvous_sender::received(const wire_header& h,
                                                   std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || !payload.empty()) return context_.violation();
    if (s->now == state::left) return delivery::taken;
    if (s->now == state::leaving) {
        s->owed = 0;  // never sent: there is nothing to abandon any more
    } else if (s->now != state::requested) {
        return context_.violation();
    }
    end(static_cast<std::uint32_t>(h.tag), {});
    return delivery::taken;
}

RDMACORO_COLD delivery rendezvous_sender::withdrawn(const wire_header& h,
                                                    std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || !payload.empty() || h.flags > 1) return context_.violation();
    if (h.flags != s->turn) return delivery::taken;  // it crossed the last `sent`
    const auto id = static_cast<std::uint32_t>(h.tag);
    switch (s->now) {
        case state::putting:
            if (s->withdrawn) return context_.violation();
            s->withdrawn = true;
            if (!revokes_at_once()) return delivery::taken;  // to its end
            static_cast<void>(stop(id));
            over(id, 1);
            return delivery::taken;
        case state::refused:
        case state::requested: over(id, 1); return delivery::taken;
        default: return delivery::taken;  // over, or canceled here
    }
}

RDMACORO_COLD delivery rendezvous_sender::gone(const wire_header& h,
                                               std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || !payload.empty() || s->now != state::left) return context_.violation();
    s->owed = 0;
    end(static_cast<std::uint32_t>(h.tag), make_error_code(errc::canceled));
    return delivery::taken;
}

RDMACORO_COLD void rendezvous_sender::fail(std::error_code reason) noexcept {
    forget_transfers();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        s.helper.busy = false;
        if (send_request* r = std::exchange(s.request, nullptr)) context_.finish_send(*r, reason);
        s.now = state::free;
        release(s);
    }
}

RDMACORO_COLD rendezvous_sender::slot* rendezvous_sender::slot_of(const wire_header& h) noexcept {
    return h.tag < slots_.size() ? &at(static_cast<std::uint32_t>(h.tag)) : nullptr;
}

RDMACORO_COLD bool rendezvous_sender::refused(std::uint32_t id) noexcept {
    return at(id).now == state::refused;
}

/// Lets the receiver get the source, if it can.
RDMACORO_COLD void rendezvous_sender::expose(send_request& r, slot& s,
                                             rendezvous_request_body& body) noexcept {
    const const_buffers& from = r.from_;
    if (from.empty() || from.pieces() > remote_pieces::most ||
        !meets_alignment(from, from.size(), context_.link_capabilities().get_alignment))
        return;
    for (std::size_t i = 0; i < from.pieces(); ++i) {
        const std::span<const std::byte> piece = from[i];
        if (piece.empty()) continue;
        region made =
            context_.expose({const_cast<std::byte*>(piece.data()), piece.size()}, access_rights::remote_read);
        if (!made || !s.regions.add(std::move(made))) {  // the receiver asks for a put instead
            s.regions.clear();
            return;
        }
    }
    s.regions.name_in(body.source);
    if (way_ == rendezvous_way::together && s.regions.size() == 1)
        body.copy = s.copy = context_.open_shared_copy(from.size());
}

RDMACORO_COLD void rendezvous_sender::stop_helping(slot& s) noexcept {
    if (std::exchange(s.helper.busy, false)) context_.revoke(s.helper);
}

RDMACORO_COLD void rendezvous_sender::release(slot& s) noexcept {
    s.regions.clear();
    stop_helping(s);
    if (s.copy != no_shared_copy) context_.close_shared_copy(std::exchange(s.copy, no_shared_copy));
    s.withdrawn = s.stalled = s.helping = false;
}

/// The receiver copies the block from its front; from now on this side does from its back.
RDMACORO_COLD delivery rendezvous_sender::help(slot& s, const wire_header& h,
                                               const rendezvous_ready_body& body) noexcept {
    const const_buffers& from = s.request->from_;
    if (h.flags != 1 || s.copy == no_shared_copy || s.helping || body.offset != 0 ||
        body.destination.count != 1 || body.destination.bytes() != from.size())
        return context_.violation();
    s.helping = true;
    // The receiver ensures that all is copied, and sends when this side may stop: a refusal needs no action here.
    s.helper.done = [](completion& c, std::error_code) noexcept {
        static_cast<helper_hook&>(c).busy = false;
    };
    const remote_pieces::piece& p = body.destination.at[0];
    s.helper.busy = true;
    if (context_.copy_from_back(s.copy, from.at_offset(0), {p.address, p.length, p.key}, s.helper) !=
        post_result::posted)
        s.helper.busy = false;
    return delivery::taken;
}

RDMACORO_COLD void rendezvous_sender::transferred(std::uint32_t id, std::error_code outcome) noexcept {
    slot& s = at(id);
    if (outcome && !is_refusal(outcome)) {
        end_link(outcome);
    } else if (s.withdrawn) {
        over(id, 1);
    } else if (outcome) {
        s.now = state::refused;
        await_reason(id);
    } else {
        send_request& r = *s.request;
        r.sent_ += s.round;
        if (r.sent_ == r.from_.size()) {
            over(id, 0);
        } else {
            s.now = state::requested;
            s.sent_flags = 0;
            owe(id, owes_sent);
        }
    }
}

/// Nothing of this send is touched any more. It ends when `sent` is sent, which a goodbye must not overtake. `flags` 1: the
/// destination is closed, and nothing more will be put.
RDMACORO_COLD void rendezvous_sender::over(std::uint32_t id, std::uint8_t flags) noexcept {
    slot& s = at(id);
    s.sent_flags = flags;
    s.now = state::ending;
    release(s);
    owe(id, owes_sent);
}

RDMACORO_COLD void rendezvous_sender::end(std::uint32_t id, std::error_code outcome) noexcept {
    slot& s = at(id);
    send_request* const r = std::exchange(s.request, nullptr);
    release(s);
    s.now = state::free;
    s.turn ^= 1;
    slots_.give(id);
    if (r != nullptr) context_.finish_send(*r, outcome);
    context_.room_for_sends();
}

RDMACORO_COLD post_result rendezvous_sender::send_owed(std::uint32_t id, std::uint8_t message) noexcept {
    if (message == owes_end) return context_.touches_closed_memory() ? post_result::retry : post_result::done;
    return message == owes_sent ? context_.post_copied(rendezvous_sent, at(id).sent_flags, id, {})
                                : context_.post_copied(rendezvous_abandon, 0, id, {});
}

RDMACORO_COLD void rendezvous_sender::owed_sent(std::uint32_t id, std::uint8_t message) noexcept {
    slot& s = at(id);
    if (message == owes_sent) {
        if (s.now == state::ending) end(id, {});
        return;
    }
    if (message == owes_abandon) {
        s.now = state::left;
        if (!revokes_at_once()) return;  // until the receiver has sent `gone`
        // Sent first: a receiver that is refused the memory finds the reason behind it.
        s.regions.clear();
        stop_helping(s);
        return owe(id, owes_end);
    }
    if (send_request* r = std::exchange(s.request, nullptr))
        context_.finish_send(*r, make_error_code(errc::canceled));
}

}  // namespace rdmacoro::detail
