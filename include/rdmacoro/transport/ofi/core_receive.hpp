// How a connection of a libfabric domain receives, and how it ends. Included by engine.hpp alone.
//
// Who closes says so by a last frame, behind all others, and keeps its socket until the peer has closed its own: then all
// has arrived. A socket that ends without a last frame is a peer that died; what it had sent is still taken for a moment.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

namespace rdmacoro::detail::fabric {

inline core::core(engine& of, std::uint64_t number) : engine_(of), number_(number) {
    timer_node::expired = [](timer_node& self) noexcept { static_cast<core&>(self).timer_expired(); };
    fd_handler::ready = [](fd_handler& self, std::uint32_t events) noexcept {
        static_cast<core&>(self).on_socket(events);
    };
}

inline core::~core() {
    engine_.owner().remove_timer(*this);
    no_longer_awaited();
    hang_up();
    static_cast<list_node<all_tag>&>(*this).unlink();
    static_cast<list_node<work_tag>&>(*this).unlink();
    static_cast<list_node<leaving_tag>&>(*this).unlink();
    static_cast<list_node<stalled_tag>&>(*this).unlink();
    static_cast<list_node<matched_tag>&>(*this).unlink();
}

inline std::string core::peer_name() const {
    return peer_.bytes != 0 ? peer_.url(engine_.scheme()) : std::string("a closed connection");
}

inline void core::set_timer(duration after) noexcept {
    engine_.owner().remove_timer(*this);
    deadline = deadline_after(engine_.owner().now(), after);
    engine_.owner().add_timer(*this);
}
inline void core::no_longer_awaited() noexcept {
    if (std::exchange(awaited_, false)) engine_.awaits_no_more();
}
inline void core::timer_expired() noexcept {
    if (phase_ == phase::opening)
        return fail_opening({errc::timed_out, 0, introduced_ ? "hear the other endpoint" : "open"});
    if (phase_ == phase::draining) {
        late_ = true;
    } else {
        fail(errc::peer_lost);
    }
}

// ---- receiving

inline void core::attach(core_listener& up) noexcept {
    up_ = &up;
    mark_work();
}

inline void core::arrived(slot& s, const frame& f) noexcept {
    if (phase_ == phase::draining) [[unlikely]] {
        arrived_too_late(f);
        return engine_.recycle(s);
    }
    ++counts_.received;
    const std::uint32_t ahead = (f.sequence - frames_in_) & frame::sequence_mask;
    if (ahead != 0 || ahead >= granted_) [[unlikely]]
        return arrived_early(s, f, ahead);
    accept_frame(s, f);
    if (!early_.empty()) [[unlikely]]
        take_early();
}

/// Messages come in order, but the provider need not report them so.
inline void core::arrived_early(slot& s, const frame& f, std::uint32_t ahead) noexcept {
    bool wrong = ahead >= granted_;
    for (slot* other = early_.first; other != nullptr && !wrong; other = other->next) {
        frame waits;
        wrong = waits.load(other->data, other->bytes) && waits.sequence == f.sequence;
    }
    if (wrong) {
        engine_.recycle(s);
        return fail(errc::protocol_violation);
    }
    // One that is missing for long went astray, when a connection of the provider's broke.
    if (early_.empty() && phase_ == phase::ready && !peer_hung_up_) set_timer(engine::patience_with_gaps);
    early_.push_back(s);
}

inline void core::take_early() noexcept {
    for (bool found = true; found;) {
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
        early_ = left;
    }
    if (early_.empty() && phase_ == phase::ready && !peer_hung_up_) engine_.owner().remove_timer(*this);
}

/// The next frame of this peer.
inline void core::accept_frame(slot& s, const frame& f) noexcept {
    if (f.credits > most_credits_ - credits_) [[unlikely]] {
        engine_.recycle(s);
        return fail(errc::protocol_violation);
    }
    ++frames_in_;
    --granted_;
    credits_ += f.credits;
    mark_work();
    if (f.kind == frame_kind::message) [[likely]] {
        inbound_.push_back(s);
        return;
    }
    ++owed_;
    take_control(f, s);
    engine_.recycle(s);
}

inline void core::take_control(const frame& f, slot& s) noexcept {
    const std::byte* const rest = s.data + frame_word_bytes;
    switch (f.kind) {
        case frame_kind::get:
        case frame_kind::put: asked(f, rest); break;
        case frame_kind::status: answered(rest); break;
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

/// Nobody listens any more; only the peer's last frame is of interest.
inline void core::arrived_too_late(const frame& f) noexcept {
    if (f.credits <= most_credits_ - credits_) credits_ += f.credits;
    if (f.kind == frame_kind::bye) got_bye_ = true;
}

inline lent_buffer core::keep() noexcept {
    if (current_ == nullptr || kept_ || !engine_.lend(*current_)) return {};
    kept_ = true;
    ++owed_;
    return lent_buffer(
        {current_->data + frame_bytes, current_->bytes - frame_bytes},
        [](void* owner, std::uint64_t token) noexcept {
            static_cast<engine*>(owner)->give_back_lent(*reinterpret_cast<slot*>(token));
        },
        &engine_, reinterpret_cast<std::uintptr_t>(current_));
}

inline unsigned core::poll(unsigned budget) noexcept {
    engine_.progress();
    list_node<work_tag>& work = *this;
    if (!work.linked()) return 0;
    work.unlink();
    return serve(budget);
}

/// Hands up what has come. Answers how many messages and completions moved.
inline unsigned core::serve(unsigned budget) noexcept {
    unsigned moved = 0;
    if (phase_ == phase::opening && failure_) {
        fail_opening({static_cast<errc>(failure_.value), 0, "greet"});
        return 1;
    }
    while (transfer* t = finished_.front()) {
        completion* c = t->done;
        const std::error_code code = t->code;
        give_back(*t);
        c->done(*c, code);
        ++moved;
    }
    if (matched_ != nullptr) moved += matched_->serve();
    const unsigned limit = moved + budget;
    while (moved < limit && phase_ == phase::ready && up_ != nullptr) {
        slot* s = inbound_.pop_front();
        if (s == nullptr) break;
        current_ = s;
        kept_ = false;
        const auto& header = *reinterpret_cast<const message_header*>(s->data + frame_word_bytes);
        const delivery answer = up_->deliver(header, {s->data + frame_bytes, s->bytes - frame_bytes});
        current_ = nullptr;
        if (answer == delivery::later) {
            if (phase_ == phase::ready) {
                inbound_.push_front(*s);
            } else {
                engine_.recycle(*s);
            }
            break;
        }
        ++moved;
        if (kept_) continue;
        engine_.recycle(*s);
        ++owed_;
    }
    if (phase_ != phase::ready) return moved;
    if (want_writable_ && up_ != nullptr && can_write() &&
        !static_cast<list_node<stalled_tag>&>(*this).linked()) {
        want_writable_ = false;
        up_->writable();
        ++moved;
        if (phase_ != phase::ready) return moved;
    }
    say_control();
    const bool listened_to = up_ != nullptr;
    if (failure_ && listened_to && inbound_.empty() && finished_.front() == nullptr &&
        engine_.dry() > failed_dry_) {
        close(failure_);
        return moved + 1;
    }
    if (listened_to && (!inbound_.empty() || failure_ || !finished_.empty())) mark_work();
    return moved;
}

// ---- ending

inline void core::fail(errc why) noexcept {
    if (failure_ || phase_ == phase::draining) return;
    failure_ = why == errc::ok ? errc::peer_lost : why;
    failed_dry_ = engine_.dry();
    mark_work();
}

/// Returns when nobody touches memory of a user's any more.
inline void core::quiesce() noexcept {
    for (transfer* t = moving_.front(); t != nullptr; t = moving_.next(*t)) {
        if (t->out) static_cast<void>(::fi_cancel(&engine_.device().endpoint()->fid, &t->scratch));
    }
    const auto limit = std::chrono::steady_clock::now() + engine::patience;
    while (moving() && std::chrono::steady_clock::now() < limit) {
        engine_.progress();
        if (asked_count_ != 0) engine_.look_at_descriptors();
    }
    if (moving()) engine_.reopen_endpoint();
}

inline void core::close(std::error_code reason) noexcept {
    if (phase_ != phase::ready) return;
    const bool gracefully = !failure_;
    if (gracefully) failure_ = reason;  // nothing more begins
    if (moving()) quiesce();
    // A peer that says good-bye has ended what it had under way.
    if (exposed_ != 0 && !got_bye_) engine_.cut_off(*this, gracefully);
    phase_ = phase::draining;
    core_listener* up = std::exchange(up_, nullptr);
    complete_all(reason);
    if (matched_ != nullptr) matched_->end(reason);
    static_cast<list_node<matched_tag>&>(*this).unlink();
    let_go(gracefully);
    if (up != nullptr) up->link_down(reason);
}

inline void core::abandon() noexcept {
    if (phase_ == phase::opening) {
        opener_ = nullptr;
        phase_ = phase::draining;
        let_go(false);
    } else if (phase_ == phase::ready) {
        up_ = nullptr;
        close(make_error_code(errc::closed));
    }
    owned_ = false;
    engine_.leaves(*this);
}

inline void core::drop_inbound() noexcept {
    while (slot* s = inbound_.pop_front()) engine_.recycle(*s);
    while (slot* s = early_.pop_front()) engine_.recycle(*s);
}

inline void core::hang_up() noexcept {
    engine_.unwatch(*this);
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    exchange_.reset();
}

/// The connection is nobody's any more, but for the object itself. Gracefully: what was sent last still goes out.
inline void core::let_go(bool gracefully) noexcept {
    no_longer_awaited();
    drop_inbound();
    static_cast<list_node<work_tag>&>(*this).unlink();
    static_cast<list_node<stalled_tag>&>(*this).unlink();
    want_writable_ = busy_ = false;
    engine_.leaves(*this);
    if (gracefully && !peer_hung_up_ && !got_bye_ && socket_ >= 0 && to_ != FI_ADDR_UNSPEC) {
        set_timer(std::chrono::seconds(1));
        awaited_ = true;
        engine_.awaits();
        say_bye();
    } else {
        late_ = true;
        hang_up();
    }
}

inline void core::say_bye() noexcept {
    if (said_bye_ || late_ || phase_ != phase::draining || to_ == FI_ADDR_UNSPEC) return;
    if (credits_ == 0) {
        late_ = true;  // not a peer that keeps its word
        return;
    }
    said_bye_ = send_control(frame_kind::bye, 0, [](std::byte*) noexcept {});
}

inline bool core::leave_step(bool in_a_hurry) noexcept {
    if (phase_ == phase::draining && (late_ || peer_hung_up_ || got_bye_ || in_a_hurry)) {
        if (got_bye_ && !said_bye_) say_bye();  // both ends closed at a time
        late_ = true;
        engine_.owner().remove_timer(*this);
        no_longer_awaited();
        hang_up();
        if (std::exchange(holds_resources_, false)) engine_.release_resources(*this);
    }
    return late_ && !owned_ && exposed_ == 0;
}

}  // namespace rdmacoro::detail::fabric
