// Bodies of detail/ahead_engine.hpp.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/detail/ahead_engine.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD bool ahead_engine::send(ahead_word word, tag_type tag,
                                      std::span<const std::byte> payload) noexcept {
    return context_.post_copied_kind(static_cast<std::uint8_t>(control_kind::ahead),
                                     static_cast<std::uint8_t>(word), tag, payload,
                                     false) == post_result::done;
}

// ---- receiving

RDMACORO_COLD void ahead_engine::peer_starved() noexcept {
    if (!linked()) context_.mailbox().starving().push_back(*this);
    if (in_ != in_state::idle) {
        again_ = true;
    } else {
        cursor_ = 0;
        receive_posted();
    }
}

RDMACORO_COLD void ahead_engine::receive_posted() noexcept {
    if (in_ != in_state::idle) return;
    // Credit may be all that it lacks.
    if (context_.credits().owes()) {
        if (context_.mailbox().matching().posted() == 0) return;
        const std::uint64_t before = context_.counts().credit_messages;
        context_.feed_now();
        if (context_.owes_credit_ || context_.counts().credit_messages != before) return;
    }
    ask();
}

RDMACORO_COLD void ahead_engine::moved() noexcept {
    for (std::uint64_t& sequence : asked_) sequence = 0;  // they name receives of the other mailbox
    cursor_ = 0;
    asked_round = 0;
    if (!linked()) return;
    unlink();
    context_.mailbox().starving().push_back(*this);
    receive_posted();
}

RDMACORO_COLD void ahead_engine::ask() noexcept {
    std::byte raw[16 * most_wants];
    choose_wanted(raw);
    if (asked_count_ == 0 && std::exchange(again_, false)) {
        cursor_ = 0;
        choose_wanted(raw);
    }
    in_ = asked_count_ != 0 ? in_state::asked : in_state::idle;
    in_owed_ = asked_count_ != 0 ? ahead_word::want : nothing;
    if (asked_count_ != 0 && send(ahead_word::want, 0, {raw, 16 * asked_count_})) in_owed_ = nothing;
}

/// The oldest receives that have not been asked for; `raw`: their tags, as they are sent.
RDMACORO_COLD void ahead_engine::choose_wanted(std::byte* raw) noexcept {
    tag_type tags[most_wants];
    tag_type masks[most_wants];
    asked_count_ = 0;
    context_.mailbox().matching().each_waiting(context_.source(), [&](receive_request& r) noexcept {
        ++walked_;
        if (r.sequence_ <= cursor_) return;
        std::uint32_t at = asked_count_ < most_wants ? asked_count_++ : most_wants;
        if (at == most_wants) {
            if (asked_[most_wants - 1] < r.sequence_) return;
            --at;
        }
        for (; at > 0 && asked_[at - 1] > r.sequence_; --at) {
            asked_[at] = asked_[at - 1];
            tags[at] = tags[at - 1];
            masks[at] = masks[at - 1];
        }
        asked_[at] = r.sequence_;
        tags[at] = r.wanted_.tag;
        masks[at] = r.wanted_.mask;
    });
    for (std::uint32_t n = 0; n < asked_count_; ++n) {
        store_number(raw + 16 * n, tags[n]);
        store_number(raw + 16 * n + 8, masks[n]);
    }
}

RDMACORO_COLD void ahead_engine::send_in() noexcept {
    if (in_owed_ == nothing) return;
    if (in_owed_ == ahead_word::want) return ask();  // for the receives that wait by now
    if (!send(in_owed_)) return;
    if (std::exchange(in_owed_, nothing) == ahead_word::decline) idle_again();
}

RDMACORO_COLD void ahead_engine::idle_again() noexcept {
    in_ = in_state::idle;
    in_owed_ = nothing;
    if (linked() || again_) ask();
}

RDMACORO_COLD receive_request* ahead_engine::first_for(tag_type tag) noexcept {
    receive_request* first = nullptr;
    context_.mailbox().matching().each_waiting(context_.source(), [&](receive_request& r) noexcept {
        ++walked_;
        if (r.wanted_.accepts(tag) && (first == nullptr || r.sequence_ < first->sequence_)) first = &r;
    });
    return first;
}

RDMACORO_COLD delivery ahead_engine::none(const wire_header& h, std::span<const std::byte> payload) noexcept {
    if (in_ != in_state::asked || in_owed_ != nothing || !payload.empty() || h.tag > 1)
        return context_.violation();
    cursor_ = asked_[asked_count_ - 1];
    if (h.tag == 0 && !again_) unlink_if_linked();  // nothing waits any more
    idle_again();
    return delivery::taken;
}

RDMACORO_COLD delivery ahead_engine::offered(const wire_header& h,
                                             std::span<const std::byte> payload) noexcept {
    if (in_ != in_state::asked || in_owed_ != nothing || payload.size() != 16) return context_.violation();
    const auto index = load_number<std::uint64_t>(payload.data());
    const auto bytes = load_number<std::uint64_t>(payload.data() + 8);
    if (index >= asked_count_ || bytes > (std::uint64_t{1} << 62)) return context_.violation();
    receive_request* const first = first_for(h.tag);
    if (first == nullptr || first->sequence_ != asked_[index]) {
        // From the oldest on: one of them may want it.
        cursor_ = 0;
        in_owed_ = ahead_word::decline;
        send_in();
        return delivery::taken;
    }
    if (index != 0) cursor_ = asked_[index - 1];
    tag_ = h.tag;
    total_ = static_cast<std::size_t>(bytes);
    arrived_ = 0;
    receive_request* const r = context_.match_counted(h.tag);
    filled_ = context_.begin_fill(*r, total_, tag_) ? r : nullptr;
    in_ = filled_ != nullptr ? in_state::filling : in_state::discarding;
    in_owed_ = ahead_word::accept;
    send_in();
    return delivery::taken;
}

RDMACORO_COLD delivery ahead_engine::begin_payload(const wire_header& h, std::size_t bytes) noexcept {
    if (h.flags != static_cast<std::uint8_t>(ahead_word::piece) || in_ < in_state::filling ||
        in_owed_ != nothing || bytes == 0 || bytes > total_ - arrived_)
        return context_.violation();
    left_of_piece_ = bytes;
    return delivery::taken;
}

RDMACORO_COLD std::span<std::byte> ahead_engine::payload_space() noexcept {
    return filled_ != nullptr ? context_.space(*filled_, arrived_, left_of_piece_) : std::span<std::byte>();
}

RDMACORO_COLD void ahead_engine::payload_arrived(std::size_t n) noexcept {
    arrived_ += n;
    left_of_piece_ -= n;
    if (left_of_piece_ == 0) piece_ended();
}

RDMACORO_COLD delivery ahead_engine::piece(std::span<const std::byte> payload) noexcept {
    if (in_ < in_state::filling || in_owed_ != nothing || payload.size() > total_ - arrived_ ||
        (payload.empty() && total_ != 0))
        return context_.violation();
    if (filled_ != nullptr) context_.fill(*filled_, arrived_, payload);
    arrived_ += payload.size();
    piece_ended();
    return payload.size() >= connection_base::long_piece ? delivery::pause : delivery::taken;
}

RDMACORO_COLD void ahead_engine::piece_ended() noexcept {
    if (arrived_ != total_) return;
    if (receive_request* r = std::exchange(filled_, nullptr)) context_.end_fill(*r, tag_, total_);
    idle_again();
}

RDMACORO_COLD delivery ahead_engine::withdrawn(std::span<const std::byte> payload) noexcept {
    if (in_ < in_state::filling || in_owed_ != nothing || !payload.empty()) return context_.violation();
    if (receive_request* r = std::exchange(filled_, nullptr))
        context_.fail_fill(*r, make_error_code(errc::peer_canceled));
    idle_again();
    return delivery::taken;
}

RDMACORO_COLD void ahead_engine::forget(const receive_request& r) noexcept {
    if (filled_ != &r) return;
    filled_ = nullptr;
    in_ = in_state::discarding;
}

// ---- sending

RDMACORO_COLD bool ahead_engine::carried(const send_request& r) const noexcept {
    return context_.list_.carries({r.from_.size(), r.synchronous_}, context_.capabilities_in_force());
}

RDMACORO_COLD delivery ahead_engine::wanted(std::span<const std::byte> payload) noexcept {
    const std::size_t count = payload.size() / 16;
    if (out_ != out_state::idle || payload.size() % 16 != 0 || count == 0 || count > most_wants)
        return context_.violation();
    struct {
        tag_type tag, mask;
    } wants[most_wants];
    for (std::size_t n = 0; n < count; ++n) {
        wants[n].tag = load_number<tag_type>(payload.data() + 16 * n);
        wants[n].mask = load_number<tag_type>(payload.data() + 16 * n + 8);
    }
    std::size_t best = count;
    for (send_request* r = context_.queue_.front(); r != nullptr && best != 0; r = context_.queue_.next(*r)) {
        ++walked_;
        for (std::size_t n = 0; n < best; ++n) {
            if ((r->tag_ & wants[n].mask) != wants[n].tag) continue;
            if (!carried(*r)) break;
            best = n;
            offered_ = r;
        }
    }
    index_ = static_cast<std::uint32_t>(best);
    out_ = offered_ != nullptr ? out_state::offered : out_state::answered;
    out_owed_ = offered_ != nullptr ? ahead_word::offer : ahead_word::none;
    context_.said_starved_ = false;  // of sends that come from now on the peer does not know
    send_out();
    return delivery::taken;
}

RDMACORO_COLD void ahead_engine::send_out() noexcept {
    if (out_owed_ == ahead_word::offer && offered_ == nullptr) {  // canceled before the peer heard of it
        out_ = out_state::answered;
        out_owed_ = ahead_word::none;
    }
    switch (out_owed_) {
        case ahead_word::none:
            if (!send(ahead_word::none, context_.queue_.empty() ? 0 : 1)) return;
            out_ = out_state::idle;
            break;
        case ahead_word::offer: {
            std::byte raw[16];
            store_number(raw, std::uint64_t{index_});
            store_number(raw + 8, std::uint64_t{offered_->from_.size()});
            if (!send(ahead_word::offer, offered_->tag_, raw)) return;
            break;
        }
        case ahead_word::withdrawn:
            if (!send(ahead_word::withdrawn)) return;
            out_ = out_state::idle;
            out_owed_ = nothing;
            context_.settled();
            return;
        default: return;
    }
    out_owed_ = nothing;
}

RDMACORO_COLD delivery ahead_engine::answered(bool accepted, std::span<const std::byte> payload) noexcept {
    if (out_ != out_state::offered || out_owed_ != nothing || !payload.empty()) return context_.violation();
    if (accepted) {
        out_ = out_state::accepted;
        begin_accepted();
    } else {
        offered_ = nullptr;
        out_ = out_state::idle;
        context_.drain();
    }
    return delivery::taken;
}

RDMACORO_COLD void ahead_engine::begin_accepted() noexcept {
    if (sending_ != nullptr) return;  // the transport still has the end of the last one
    out_ = out_state::sending;
    if (send_request* const r = std::exchange(offered_, nullptr)) {
        r->unlink();
        r->via_ = &context_;
        r->policy_ = policy;
        r->sent_ = 0;
        r->in_flight_ = false;
        sending_ = r;
        ++context_.counts().sent_ahead;
        context_.under_way();
        pump();
    } else {
        out_owed_ = ahead_word::withdrawn;
        context_.under_way();  // no goodbye before it
        send_out();
    }
    context_.drain();
}

RDMACORO_COLD void ahead_engine::pump() noexcept {
    send_request& r = *sending_;
    const std::size_t total = r.from_.size();
    const std::size_t before = r.sent_;
    do {
        if (r.sent_ - before >= most_at_once) return context_.go_on_later();
        const std::size_t longest = context_.capabilities_in_force().segment_bytes;
        const std::size_t left = total - r.sent_;
        const const_buffers part = r.from_.slice(r.sent_, left < longest ? left : longest, r.from_.pieces());
        switch (context_.post_kind(static_cast<std::uint8_t>(control_kind::ahead),
                                   static_cast<std::uint8_t>(ahead_word::piece), 0, part, r, false)) {
            case post_result::done: r.sent_ += part.size(); break;
            case post_result::posted:
                r.in_flight_ = true;
                r.posted_bytes_ = part.size();
                if (r.sent_ + r.posted_bytes_ == total) out_ = out_state::idle;  // the peer may ask again
                return;
            case post_result::retry:
            case post_result::failed: return;  // writable() comes back, or fail() ends it
        }
    } while (r.sent_ != total);
    out_ = out_state::idle;
    end_send({});
}

RDMACORO_COLD void ahead_engine::end_send(status outcome) noexcept {
    context_.finish_send(*std::exchange(sending_, nullptr), outcome);
    if (out_ == out_state::accepted) begin_accepted();
}

RDMACORO_COLD void ahead_engine::transmitted(send_request& r, std::error_code outcome) noexcept {
    r.in_flight_ = false;
    r.sent_ += r.posted_bytes_;
    if (!outcome && r.sent_ != r.from_.size()) {
        pump();
    } else {
        end_send(outcome);
    }
}

RDMACORO_COLD void ahead_engine::cancel(send_request& r) noexcept {
    if (r.in_flight_ && context_.revoke(r)) return;  // the link had to be closed, and has ended the send
    if (std::exchange(r.in_flight_, false) && r.sent_ + r.posted_bytes_ == r.from_.size()) {
        end_send({});  // too late
        return;
    }
    out_owed_ = ahead_word::withdrawn;
    context_.under_way();  // no goodbye before it
    send_out();
    end_send(make_error_code(errc::canceled));
}

// ---- both

RDMACORO_COLD delivery ahead_engine::arrived(const wire_header& h,
                                             std::span<const std::byte> payload) noexcept {
    switch (static_cast<ahead_word>(h.flags)) {
        case ahead_word::want: return wanted(payload);
        case ahead_word::none: return none(h, payload);
        case ahead_word::offer: return offered(h, payload);
        case ahead_word::accept: return answered(true, payload);
        case ahead_word::decline: return answered(false, payload);
        case ahead_word::piece: return piece(payload);
        case ahead_word::withdrawn: return withdrawn(payload);
    }
    return context_.violation();
}

RDMACORO_COLD void ahead_engine::writable() noexcept {
    send_in();
    send_out();
    go_on();
}

RDMACORO_COLD void ahead_engine::fail(std::error_code reason) noexcept {
    unlink_if_linked();
    again_ = false;
    if (receive_request* r = std::exchange(filled_, nullptr)) context_.fail_fill(*r, reason);
    offered_ = nullptr;
    if (send_request* r = std::exchange(sending_, nullptr)) context_.finish_send(*r, reason);
    in_ = in_state::idle;
    out_ = out_state::idle;
    in_owed_ = out_owed_ = nothing;
}

}  // namespace rdmacoro::detail
