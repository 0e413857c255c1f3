// Bodies of segmented_engine.hpp.
#pragma once

#include <rdmacoro/protocol/detail/segmented_engine.hpp>

#include <cstring>
#include <utility>

namespace rdmacoro::detail {

// ---- sending

RDMACORO_DECL std::uint32_t segmented_engine::take_out() noexcept {
    if (free_out_ == none) {
        const std::uint32_t id = out_.size();
        return out_.reach(id + 1) ? id : none;
    }
    const std::uint32_t id = free_out_;
    free_out_ = out_[id].next_free;
    return id;
}

RDMACORO_DECL void segmented_engine::give_out(std::uint32_t id) noexcept {
    out_[id].request = nullptr;
    out_[id].state = out_state::free;
    out_[id].next_free = free_out_;
    free_out_ = id;
}

RDMACORO_DECL start_result segmented_engine::start(send_request& r) noexcept {
    if (free_out_ == none && out_.size() == most_streams) return start_result::wait_peer;
    const std::size_t bytes = r.from_.size();
    const std::size_t unasked = unasked_by_peer();
    const std::uint32_t cost = message_cost(bytes < unasked ? bytes : unasked);
    if (!context_.credits().take(cost)) return start_result::wait_credit;
    const std::uint32_t id = take_out();
    if (id == none) {
        context_.credits().untake(cost);
        r.finish(errc::no_resources);
        return start_result::begun;
    }
    std::byte raw[announcement_bytes];
    store_number(raw, id);
    store_number(raw + 4, std::uint32_t{r.synchronous_ ? 1u : 0u});
    store_number(raw + 8, std::uint64_t{bytes});
    switch (send_word(segment_kind::announce, r.tag_, raw)) {
        case post_result::done: break;
        case post_result::failed:
            give_out(id);
            r.finish(context_.why_failed());
            return start_result::begun;
        default:
            give_out(id);
            context_.credits().untake(cost);
            return start_result::wait_room;
    }
    ++context_.counts().segmented_sent;
    r.stream_ = id;
    r.sent_ = 0;
    r.answered_ = false;
    r.since_ = context_.mailbox().owner().coarse_now().time_since_epoch().count();
    out_[id].request = &r;
    out_[id].state = out_state::sending;
    context_.under_way();
    go_on(r);
    return start_result::begun;
}

RDMACORO_DECL void segmented_engine::transmitted(send_request& r, std::error_code outcome) noexcept {
    r.in_flight_ = false;
    if (outcome) {
        end_send(r, outcome);
        return;
    }
    r.sent_ += r.posted_bytes_;
    go_on(r);
}

RDMACORO_COLD void segmented_engine::cancel_send(send_request& r) noexcept {
    if (r.in_flight_) {
        if (context_.revoke(r)) return;  // the link had to be closed, and has ended the send
        r.in_flight_ = false;
    }
    out_slot& slot = out_[r.stream_];
    slot.state = out_state::abandoning;
    slot.request = nullptr;
    ++leaving_;
    send_abandon(r.stream_);
    context_.finish_send(r, make_error_code(errc::canceled));
}

RDMACORO_DECL std::size_t segmented_engine::allowed(const send_request& r) noexcept {
    const std::size_t total = r.from_.size();
    const std::size_t unasked = unasked_by_peer();
    return r.answered_ || total < unasked ? total : unasked;
}

RDMACORO_DECL void segmented_engine::go_on(send_request& r) noexcept {
    const std::size_t total = r.from_.size();
    if (r.sent_ == total && (r.answered_ || !(r.synchronous_ || total > unasked_by_peer()))) {
        end_send(r, {});
        return;
    }
    out_slot& slot = out_[r.stream_];
    if (r.sent_ < allowed(r) && !slot.queued) {
        slot.queued = true;
        slot.next_turn = none;
        (first_turn_ == none ? first_turn_ : out_[last_turn_].next_turn) = r.stream_;
        last_turn_ = r.stream_;
    }
    take_turns();
}

RDMACORO_DECL void segmented_engine::take_turns() noexcept {
    if (taking_turns_) return;
    taking_turns_ = true;
    while (first_turn_ != none) {
        const std::uint32_t id = first_turn_;
        send_request* const r = out_[id].request;  // nullptr: it was canceled meanwhile
        const bool waits = r != nullptr && !r->in_flight_ && r->sent_ < allowed(*r);
        if (waits) {
            // `retry`: writable() comes back; `failed`: fail() ends it.
            const post_result answer = asked_ < most_asked ? post_piece(*r) : post_result::retry;
            if (answer == post_result::retry || answer == post_result::failed) break;
        }
        first_turn_ = out_[id].next_turn;
        out_[id].queued = false;
        if (waits && !r->in_flight_) go_on(*r);
    }
    taking_turns_ = false;
}

RDMACORO_DECL post_result segmented_engine::post_piece(send_request& r) noexcept {
    const capabilities& link = context_.capabilities_in_force();
    const bool counts = !link.byte_stream;
    const std::size_t longest = counts && link.segment_bytes > ask_after ? ask_after : link.segment_bytes;
    const std::size_t left = allowed(r) - r.sent_;
    const const_buffers part = r.from_.slice(r.sent_, left < longest ? left : longest, r.from_.pieces());
    const std::size_t bytes = part.size();
    const bool asks = counts && stored_bytes_ + bytes >= ask_after;
    const post_result answer =
        context_.post_kind(on_wire(segment_kind::piece), asks ? 1 : 0, r.stream_, part, r, false);
    if (answer == post_result::done) {
        r.sent_ += bytes;
        if (counts) stored_bytes_ += bytes;
    } else if (answer == post_result::posted) {
        r.in_flight_ = true;
        r.posted_bytes_ = bytes;
    } else {
        return answer;
    }
    if (asks) {
        stored_bytes_ = 0;
        ++asked_;
    }
    ++context_.counts().segments_sent;
    return answer;
}

RDMACORO_DECL void segmented_engine::end_send(send_request& r, std::error_code outcome) noexcept {
    give_out(r.stream_);
    context_.finish_send(r, outcome);
    context_.room_for_sends();
}

RDMACORO_COLD void segmented_engine::send_abandon(std::uint32_t id) noexcept {
    if (send_word(segment_kind::abandon, id) != post_result::done) return;
    out_[id].state = out_state::abandoned;
    --leaving_;
}

RDMACORO_DECL delivery segmented_engine::proceeded(const wire_header& h,
                                                   std::span<const std::byte> payload) noexcept {
    if (h.tag >= out_.size() || !payload.empty()) return context_.violation();
    out_slot& slot = out_[static_cast<std::uint32_t>(h.tag)];
    if (slot.state == out_state::free) return context_.violation();
    if (slot.state != out_state::sending) return delivery::taken;  // given up meanwhile
    send_request& r = *slot.request;
    if (r.answered_ || !(r.synchronous_ || r.from_.size() > unasked_by_peer())) return context_.violation();
    r.answered_ = true;
    if (!r.in_flight_) go_on(r);
    return delivery::taken;
}

RDMACORO_COLD delivery segmented_engine::peer_gone(const wire_header& h,
                                                   std::span<const std::byte> payload) noexcept {
    if (h.tag >= out_.size() || !payload.empty()) return context_.violation();
    const auto id = static_cast<std::uint32_t>(h.tag);
    if (out_[id].state != out_state::abandoned) return context_.violation();
    give_out(id);
    context_.room_for_sends();
    return delivery::taken;
}

RDMACORO_DECL delivery segmented_engine::peer_took(const wire_header& h,
                                                   std::span<const std::byte> payload) noexcept {
    if (h.tag == 0 || h.tag > asked_ || !payload.empty()) return context_.violation();
    asked_ -= static_cast<std::uint32_t>(h.tag);
    const std::uint64_t before = context_.counts().segments_sent;
    take_turns();
    return context_.counts().segments_sent != before ? delivery::pause : delivery::taken;
}

// ---- receiving

RDMACORO_DECL delivery segmented_engine::arrived(unsigned kind, const wire_header& h,
                                                 std::span<const std::byte> payload) noexcept {
    switch (static_cast<segment_kind>(kind)) {
        case segment_kind::announce: return announced(h, payload);
        case segment_kind::piece: return piece_arrived(h, payload);
        case segment_kind::proceed: return proceeded(h, payload);
        case segment_kind::abandon: return abandoned(h, payload);
        case segment_kind::gone: return peer_gone(h, payload);
        case segment_kind::taken: break;
    }
    return peer_took(h, payload);
}

RDMACORO_DECL delivery segmented_engine::begin_payload(unsigned kind, const wire_header& h,
                                                       std::size_t bytes) noexcept {
    in_slot* slot =
        static_cast<segment_kind>(kind) == segment_kind::piece ? admissible_piece(h, bytes) : nullptr;
    if (slot == nullptr) return context_.violation();
    current_ = static_cast<std::uint32_t>(h.tag);
    current_left_ = bytes;
    current_asks_ = h.flags != 0;
    return delivery::taken;
}

RDMACORO_DECL std::span<std::byte> segmented_engine::payload_space() noexcept {
    in_slot& slot = in(current_);
    if (slot.state == in_state::filling) return context_.space(*slot.request, slot.arrived, current_left_);
    if (slot.state == in_state::stored) return {slot.message->payload() + slot.arrived, current_left_};
    return {};
}

RDMACORO_DECL void segmented_engine::payload_arrived(std::size_t n) noexcept {
    in_slot& slot = in(current_);
    slot.arrived += n;
    current_left_ -= n;
    if (slot.state == in_state::stored) slot.message->stored = slot.arrived;
    if (current_left_ != 0) return;
    after_piece(current_);
    if (current_asks_) send_taken();
}

RDMACORO_DECL void segmented_engine::matched(unexpected_message& m, receive_request& r) noexcept {
    if (m.complete) {
        connection_base::hand_over(m, r);
        return;
    }
    const std::uint32_t id = m.stream;
    in_slot& slot = in(id);
    slot.message = nullptr;
    slot.tag = m.tag;
    if (context_.begin_fill(r, slot.total, slot.tag)) {
        slot.state = in_state::filling;
        slot.request = &r;
        context_.fill(r, 0, {m.payload(), m.stored});
    } else {
        slot.state = in_state::discarding;
    }
    context_.free(m);  // gives its credit back
    if (wants_answer(slot)) answer(id);
    if (slot.arrived == slot.total) after_piece(id);
}

RDMACORO_COLD bool segmented_engine::forget_receive(receive_request& r) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        in_slot& slot = in(id);
        if (slot.state != in_state::filling || slot.request != &r) continue;
        slot.state = in_state::discarding;
        slot.request = nullptr;
    }
    return true;
}

RDMACORO_DECL delivery segmented_engine::announced(const wire_header& h,
                                                   std::span<const std::byte> payload) noexcept {
    if (payload.size() != announcement_bytes) return context_.violation();
    std::byte raw[announcement_bytes];
    std::memcpy(raw, payload.data(), announcement_bytes);
    const auto id = load_number<std::uint32_t>(raw);
    const auto flags = load_number<std::uint32_t>(raw + 4);
    const auto total64 = load_number<std::uint64_t>(raw + 8);
    if (id >= most_streams || !slots_.in_sequence(id) || flags > 1 || total64 > (std::uint64_t{1} << 62))
        return context_.violation();
    if (!slots_.reach(id)) {
        context_.close(make_error_code(errc::no_resources));
        return delivery::taken;
    }
    in_slot& slot = in(id);
    if (slot.state != in_state::none || slot.owed != 0) return context_.violation();
    const auto total = static_cast<std::size_t>(total64);
    const std::size_t unasked = total < unasked_here() ? total : unasked_here();
    const std::uint32_t cost = message_cost(unasked);
    receive_request* r = context_.match_counted(h.tag);
    if (r == nullptr && context_.better_to_defer()) return delivery::defer;
    slot = {};
    slot.total = total;
    slot.tag = h.tag;
    slot.synchronous = flags == 1;
    if (r != nullptr) {
        if (!context_.pass(cost)) {
            context_.fail_fill(*r, make_error_code(errc::protocol_violation));
            return delivery::taken;
        }
        if (context_.begin_fill(*r, total, slot.tag)) {
            slot.state = in_state::filling;
            slot.request = r;
        } else {
            slot.state = in_state::discarding;
        }
        if (wants_answer(slot)) answer(id);
    } else {
        unexpected_message* m = context_.keep_message(policy_, h.tag, total, unasked, cost);
        if (m == nullptr) return delivery::taken;
        m->stored = 0;
        m->stream = id;
        m->complete = false;
        slot.state = in_state::stored;
        slot.message = m;
        context_.announce(*m);
    }
    if (total == 0) after_piece(id);
    return delivery::taken;
}

RDMACORO_DECL segmented_engine::in_slot* segmented_engine::admissible_piece(const wire_header& h,
                                                                            std::size_t bytes) noexcept {
    if (h.tag >= slots_.size() || bytes == 0 || h.flags > 1) return nullptr;
    in_slot& slot = in(static_cast<std::uint32_t>(h.tag));
    if (slot.state == in_state::none) return nullptr;
    std::size_t allowed = slot.total;
    if (slot.state == in_state::stored && unasked_here() < allowed) allowed = unasked_here();
    return bytes <= allowed - slot.arrived ? &slot : nullptr;
}

RDMACORO_DECL delivery segmented_engine::piece_arrived(const wire_header& h,
                                                       std::span<const std::byte> payload) noexcept {
    in_slot* slot = admissible_piece(h, payload.size());
    if (slot == nullptr) return context_.violation();
    if (slot->state == in_state::filling) {
        context_.fill(*slot->request, slot->arrived, payload);
    } else if (slot->state == in_state::stored) {
        copy_long(slot->message->payload() + slot->arrived, payload.data(), payload.size());
        slot->message->stored += payload.size();
        context_.count_copy(payload.size());
    }
    slot->arrived += payload.size();
    after_piece(static_cast<std::uint32_t>(h.tag));
    if (h.flags != 0) send_taken();
    return payload.size() >= connection_base::long_piece ? delivery::pause : delivery::taken;
}

RDMACORO_DECL void segmented_engine::after_piece(std::uint32_t id) noexcept {
    in_slot& slot = in(id);
    if (slot.arrived != slot.total) return;
    if (slot.state == in_state::stored) {
        if (wants_answer(slot)) return;  // stays until it is matched
        slot.message->complete = true;
    } else if (slot.state == in_state::filling) {
        context_.end_fill(*std::exchange(slot.request, nullptr), slot.tag, slot.total);
    }
    slot.state = in_state::none;
}

RDMACORO_DECL void segmented_engine::send_taken() noexcept {
    if (++taken_unsent_ == 1) context_.under_way();  // no goodbye before it
    if (send_word(segment_kind::taken, taken_unsent_) != post_result::done) return;
    taken_unsent_ = 0;
    context_.settled();
}

RDMACORO_DECL void segmented_engine::answer(std::uint32_t id) noexcept {
    in(id).answered = true;
    owe(id, owes_proceed);
}

RDMACORO_DECL post_result segmented_engine::send_owed(std::uint32_t id, std::uint8_t message) noexcept {
    return send_word(message == owes_proceed ? segment_kind::proceed : segment_kind::gone, id);
}

RDMACORO_COLD delivery segmented_engine::abandoned(const wire_header& h,
                                                   std::span<const std::byte> payload) noexcept {
    if (h.tag >= slots_.size() || !payload.empty()) return context_.violation();
    const auto id = static_cast<std::uint32_t>(h.tag);
    in_slot& slot = in(id);
    if ((slot.owed & owes_gone) != 0) return context_.violation();
    if (slot.state == in_state::filling) {
        context_.fail_fill(*std::exchange(slot.request, nullptr), make_error_code(errc::peer_canceled));
    } else if (slot.state == in_state::stored) {
        context_.withdraw(*slot.message);
    }
    slot.state = in_state::none;
    slot.owed = 0;  // `proceed` is not wanted any more
    owe(id, owes_gone);
    return delivery::taken;
}

// ---- both

RDMACORO_DECL void segmented_engine::writable() noexcept {
    send_remembered();
    if (taken_unsent_ != 0 && send_word(segment_kind::taken, taken_unsent_) == post_result::done) {
        taken_unsent_ = 0;
        context_.settled();
    }
    if (leaving_ != 0) {
        for (std::uint32_t id = 0; id < out_.size(); ++id) {
            if (out_[id].state == out_state::abandoning) send_abandon(id);
        }
    }
    take_turns();
}

RDMACORO_COLD void segmented_engine::fail(std::error_code reason) noexcept {
    for (out_slot& slot : out_) {
        send_request* r = std::exchange(slot.request, nullptr);
        slot.state = out_state::free;
        slot.queued = false;
        if (r != nullptr) context_.finish_send(*r, reason);
    }
    forget_owed();
    leaving_ = asked_ = taken_unsent_ = 0;
    first_turn_ = none;
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        in_slot& slot = in(id);
        if (slot.state == in_state::filling) context_.fail_fill(*slot.request, reason);
        if (slot.state == in_state::stored) context_.lose(*slot.message);
        slot = {};
    }
}

}  // namespace rdmacoro::detail
