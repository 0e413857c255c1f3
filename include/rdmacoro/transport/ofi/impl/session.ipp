// How a connection of a libfabric domain begins and ends, and the rare cases of its sending and receiving.
//
// The side that closes sends a last frame, `bye`, after all others, and keeps its socket open until the peer has closed its own:
// then everything has arrived. A socket that ends without a `bye` means that the peer died; frames that it had sent are still
// taken for a moment.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

#include <chrono>
#include <cstring>
#include <utility>

namespace rdmacoro::detail::fabric {

RDMACORO_DECL session::session(engine& of, std::uint64_t number)
    : engine_(of),
      number_(number),
      timer_(of.owner(), this, [](void* self) noexcept { static_cast<session*>(self)->timer_expired(); }),
      awaited_(of.watching()),
      socket_(of.watching(), *this) {
    fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<session&>(self).on_socket();
    };
}

RDMACORO_DECL session::~session() {
    static_cast<list_node<connection_tag>&>(*this).unlink();
    static_cast<list_node<work_tag>&>(*this).unlink();
    static_cast<list_node<leaving_tag>&>(*this).unlink();
    static_cast<list_node<stalled_tag>&>(*this).unlink();
    engine_.matches_no_more(*this);
    static_cast<list_node<pending_tag>&>(*this).unlink();
    static_cast<list_node<serving_tag>&>(*this).unlink();
}

RDMACORO_DECL std::string session::peer_name() const {
    return peer_.bytes != 0 ? peer_.url(engine_.scheme()) : std::string("a closed connection");
}

RDMACORO_COLD std::uint8_t session::peer_host() const noexcept { return host_hash(peer_); }

RDMACORO_DECL void session::timer_expired() noexcept {
    if (phase_ == phase::opening)
        return fail_opening({errc::timed_out, 0, introduced_ ? "hear the other endpoint" : "open"});
    if (phase_ == phase::draining) {
        late_ = true;
    } else {
        fail(errc::peer_lost);
    }
}

// ---- receiving

/// Frames arrive in order, but the provider may report them in another.
RDMACORO_DECL void session::arrived_early(slot& s, const frame& f, std::uint32_t ahead) noexcept {
    bool wrong = ahead >= window_.granted();
    for (slot* other = early_.first; other != nullptr && !wrong; other = other->next) {
        frame waits;
        wrong = waits.load(other->data, other->bytes) && waits.sequence == f.sequence;
    }
    if (wrong) {
        recycle(s);
        return fail(errc::protocol_violation);
    }
    // A frame that is missing for long was lost with a connection of the provider.
    if (early_.empty() && phase_ == phase::ready && !peer_hung_up_) timer_.set(engine::patience_with_gaps);
    early_.push_back(s);
}

RDMACORO_DECL void session::take_early() noexcept {
    bool any = false;
    for (bool found = true; found; any |= found) {
        found = false;
        slot_queue left;
        while (slot* s = early_.pop_front()) {
            frame f;
            if (f.load(s->data, s->bytes) && f.sequence == (frames_in_ & frame::sequence_mask)) {
                accept_frame(*s, f);
                found = true;
            } else {
                left.push_back(*s);
            }
        }
        if (phase_ == phase::draining)
            [[unlikely]] {  // one of them has ended the link, which drops the others
            while (slot* s = left.pop_front()) recycle(*s);
            return;
        }
        early_ = left;
    }
    if (phase_ != phase::ready || peer_hung_up_) return;
    // The next one that is missing has its own time, also where the first came before the link was open.
    if (early_.empty()) {
        timer_.cancel();
    } else if (any || !timer_.queued()) {
        timer_.set(engine::patience_with_gaps);
    }
}

RDMACORO_DECL void session::take_control(const frame& f, slot& s) noexcept {
    const std::byte* const rest = s.data + frame_word_bytes;
    // A session that fails to open is freed at once: nothing of it may be with the provider.
    if (phase_ == phase::opening && f.kind != frame_kind::hello && f.kind != frame_kind::credit)
        return fail(errc::protocol_violation);
    switch (f.kind) {
        case frame_kind::get:
        case frame_kind::put: asked(f, rest); break;
        case frame_kind::status: answered(rest); break;
        case frame_kind::withdraw: withdrawn(load_number<std::uint32_t>(rest)); break;
        case frame_kind::hello:
            if (std::exchange(got_hello_, true)) return fail(errc::protocol_violation);
            greet();
            break;
        case frame_kind::bye:
            got_bye_ = true;
            fail(errc::peer_lost);
            break;
        case frame_kind::tagged_address:
        case frame_kind::fetched: return take_tagged(f.kind, {rest, s.bytes - frame_word_bytes});
        case frame_kind::message:
        case frame_kind::credit: break;
    }
}

/// After closing, only the credits, which the last frame may wait for, and the peer's last frame matter.
RDMACORO_DECL void session::arrived_too_late(const frame& f) noexcept {
    const bool waits = window_.credits() == 0;
    static_cast<void>(window_.regain(f.credits));
    if (f.kind == frame_kind::bye) got_bye_ = true;
    if (waits) send_bye();
}

RDMACORO_DECL lent_buffer session::keep() noexcept {
    lent_buffer lent = inbox_.keep(engine_.receives());
    if (lent) window_.owe();
    return lent;
}

// ---- sending

/// The provider had no room: pending posts are tried again at the next poll.
RDMACORO_DECL void session::stall() noexcept {
    ++counts_.retries;
    if (!static_cast<list_node<stalled_tag>&>(*this).linked()) engine_.stalled(*this);
}

RDMACORO_DECL post_result session::no_room() noexcept {
    want_writable_ = true;
    return post_result::retry;
}

/// Precondition: `can_send_control()`, or it is the first frame or the last. `rest` comes after the word.
RDMACORO_DECL bool session::send_control(frame_kind kind, std::span<const std::byte> rest) noexcept {
    const std::size_t whole = frame_word_bytes + rest.size();
    const bool injects = whole <= engine_.inject_limit();
    slot* staged = injects ? nullptr : engine_.slots().take();
    if (!injects && staged == nullptr) {
        stall();
        return false;
    }
    std::byte* const to = injects ? engine_.scratch() : staged->data;
    store_word(kind, to);
    if (!rest.empty()) std::memcpy(to + frame_word_bytes, rest.data(), rest.size());
    const sent how = injects ? send_bytes(to, whole) : send_slot(*staged, whole);
    if (how != sent::yes) {
        if (staged != nullptr) engine_.slots().give(*staged);
        busy_ = how == sent::busy;
        return false;
    }
    sent_one();
    ++counts_.control_frames;
    return true;
}

RDMACORO_DECL void session::send_owed_control() noexcept {
    if (!answers_.empty()) send_answers();
    if (!asking_.empty()) ask_peer();
    if (matched_ != nullptr) matched_->send_owed();
    if (wanted_ != 0) send_wanted();
    if (window_.return_due() && can_return_credits()) static_cast<void>(send_control(frame_kind::credit));
}
RDMACORO_DECL void session::send_wanted() noexcept {
    if ((wanted_ & wants::probe) != 0) send_probe();
    if ((wanted_ & wants::credits_for_the_short) == 0) return;
    if (window_.peer_is_short() && !(can_return_credits() && send_control(frame_kind::credit))) return;
    wanted_ &= static_cast<std::uint8_t>(~wants::credits_for_the_short);
}

RDMACORO_COLD void session::doubt() noexcept {
    if (phase_ != phase::ready || failure_ || proven_ == frames_out_) return;
    wanted_ |= wants::probe;
    mark_work();
}
RDMACORO_COLD bool session::beat() noexcept {
    if (phase_ != phase::ready || failure_) return phase_ == phase::opening;
    // The scheduler of a peer that computes does not poll, and consumes no keepalive frames: they stop at half of the window, and leave the rest to messages.
    if (std::exchange(beaten_, frames_out_) == frames_out_ && staged_ == 0 && window_.mostly_free()) {
        wanted_ |= wants::probe;
        mark_work();
    }
    return true;
}
/// A frame that returns credits, sent from a slot: the provider reports when that fails. The peer that receives it sees by its number
/// whether a frame is missing.
RDMACORO_COLD void session::send_probe() noexcept {
    if (!can_send_control() || staged_ >= most_staged) return;
    slot* const s = engine_.slots().take();
    if (s == nullptr) return stall();
    store_word(frame_kind::credit, s->data);
    const sent how = send_slot(*s, frame_word_bytes);
    if (how != sent::yes) {
        engine_.slots().give(*s);
        busy_ = how == sent::busy;
        return;
    }
    sent_one();
    ++counts_.control_frames;
    proven_ = frames_out_;
    wanted_ &= static_cast<std::uint8_t>(~wants::probe);
}

RDMACORO_DECL void session::pump() noexcept {
    busy_ = false;
    if (phase_ == phase::draining) return send_bye();
    if (phase_ == phase::opening) return greet();
    if (phase_ != phase::ready) return;
    if (transfers_.partial() != 0 && !failure_) {
        for (transfer* t = transfers_.moving().front(); t != nullptr && transfers_.partial() != 0;) {
            transfer* after = transfers_.moving().next(*t);
            if (t->partial && !t->out) post_piece(*t);
            if (static_cast<list_node<stalled_tag>&>(*this).linked()) break;
            t = after;
        }
    }
    send_owed_control();
    if (want_writable_) mark_work();
}

// ---- ending

RDMACORO_DECL void session::fail(errc why) noexcept {
    if (failure_ || phase_ == phase::draining) return;
    failure_.set(why == errc::ok ? errc::peer_lost : why, engine_.empty_polls());
    if (list_node<matched_tag>& node = *this; node.linked())
        engine_.matched_works(*this);  // what came before
    mark_work();
}

RDMACORO_COLD void session::cancel_pieces() noexcept {
    for (transfer* t = transfers_.moving().front(); t != nullptr; t = transfers_.moving().next(*t)) {
        if (t->out) static_cast<void>(::fi_cancel(&engine_.device().endpoint()->fid, &t->scratch));
    }
}

/// Whether neither the provider nor the peer of a link that has failed touches memory of users any more, as far as waiting shows it.
RDMACORO_COLD bool session::settled() noexcept {
    if (moving()) return false;
    if (exposed_ == 0 || got_bye_ || severed_ || to_ == FI_ADDR_UNSPEC ||
        !engine_.access_ends_with_connection())
        return true;
    const auto now = patience::clock::now();
    if (now - asked_at_ < patience::pause) return false;
    asked_at_ = now;
    severed_ = engine_.disconnected(*this);
    return severed_;
}

/// Whether a link that has failed does not go down yet, so that its transfers end while other links, and this thread, go on.
RDMACORO_COLD bool session::lingers() noexcept {
    if (!engine_.has_endpoint()) return false;
    if (!patience_.begun()) cancel_pieces();
    const bool over = patience_.over(patience::clock::now());
    if (settled() || over) return false;
    timer_.set(patience::pause);  // a scheduler that sleeps looks again
    return true;
}

/// Returns when neither the provider nor the peer touches memory of users any more, but for memory that is exposed to a peer that
/// lives. What patience does not end, the end of the endpoint does.
RDMACORO_DECL void session::quiesce(bool gracefully) noexcept {
    if (!patience_.begun()) cancel_pieces();
    while ((gracefully ? moving() : !settled()) && !patience_.over(patience::clock::now())) {
        engine_.progress_waiting();
        if (gracefully) withdraw_asked();
        answer_while_waiting();
        if (asked_count_ != 0) engine_.watching().look();
    }
    if (moving()) engine_.reopen_endpoint();
}

RDMACORO_DECL void session::close(std::error_code reason) noexcept {
    if (phase_ != phase::ready) return;
    const bool gracefully = !failure_;
    if (gracefully) withdraw_asked();
    failure_.set(reason, engine_.empty_polls());  // nothing more begins
    quiesce(gracefully);
    const bool reads = gracefully && readable_.count != 0 && peer_may_move();
    if (exposed_ != 0 && !got_bye_) engine_.cut_off(*this);
    phase_ = phase::draining;
    if (reads) end_reads();
    session_listener* const listener = inbox_.detach();
    complete_all(reason);
    if (matched_ != nullptr) matched_->end(reason);
    engine_.matches_no_more(*this);
    let_go(gracefully);
    if (listener != nullptr) listener->link_down(reason);
}

/// The peer's gets from memory that is exposed to it: it ends them when it hears that the link does. A peer that stands still is not waited
/// for: when it goes on, a message that it was getting may have what the memory holds by then.
RDMACORO_COLD void session::end_reads() noexcept {
    if (engine_.serves()) return;  // this side moves the data, and has ended its transfers
    send_bye();
    engine_.wait_for_readers([this]() noexcept {
        engine_.watching().look();
        return peer_may_move();
    });
}

RDMACORO_DECL void session::abandon() noexcept {
    if (phase_ == phase::opening) {
        opener_ = nullptr;
        phase_ = phase::draining;
        let_go(false);
    } else if (phase_ == phase::ready) {
        inbox_.detach();
        close(make_error_code(errc::closed));
    }
    owned_ = false;
    engine_.leaves(*this);
}

RDMACORO_DECL void session::drop_inbound() noexcept {
    while (slot* s = inbox_.pop()) recycle(*s);
    while (slot* s = early_.pop_front()) recycle(*s);
}

/// Releases the connection; the object remains until it can be destroyed. Gracefully: the last frames still go out.
RDMACORO_DECL void session::let_go(bool gracefully) noexcept {
    awaited_.end();
    no_longer_pending();
    drop_inbound();
    static_cast<list_node<work_tag>&>(*this).unlink();
    static_cast<list_node<stalled_tag>&>(*this).unlink();
    want_writable_ = busy_ = false;
    engine_.leaves(*this);
    if (gracefully && !peer_hung_up_ && !got_bye_ && socket_.is_open() && to_ != FI_ADDR_UNSPEC) {
        timer_.set(std::chrono::seconds(1));
        awaited_.begin();
        send_bye();
    } else {
        late_ = true;
        socket_.close();
    }
}

RDMACORO_DECL void session::send_bye() noexcept {
    if (sent_bye_ || late_ || phase_ != phase::draining || to_ == FI_ADDR_UNSPEC) return;
    if (window_.credits() == 0) return;  // until the peer returns some, or the timer is over
    sent_bye_ = send_control(frame_kind::bye);
}

RDMACORO_DECL bool session::leave_step(bool in_a_hurry) noexcept {
    if (phase_ == phase::draining && (late_ || peer_hung_up_ || got_bye_ || in_a_hurry)) {
        if (got_bye_ && !sent_bye_) send_bye();  // both ends closed at the same time
        late_ = true;
        timer_.cancel();
        awaited_.end();
        socket_.close();
        if (std::exchange(holds_resources_, false)) engine_.release_resources(*this);
    }
    if (!late_) return false;
    const bool over = !owned_ && exposed_ == 0 && readable_.count == 0;
    // Its owner, or the end of a region, puts it back: until then it is no work.
    if (!over) static_cast<list_node<leaving_tag>&>(*this).unlink();
    return over;
}

}  // namespace rdmacoro::detail::fabric
