// The path of a message through a libfabric domain: the functions that run for each message. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

#include <array>
#include <cstring>

namespace rdmacoro::detail::fabric {

// ---- a session sends

inline void session::mark_work() noexcept {
    if (!static_cast<list_node<work_tag>&>(*this).linked()) engine_.work(*this);
}

inline bool session::can_write() const noexcept {
    return window_.credits() > reserved_credits && staged_ < most_staged && transfers_.partial_puts() == 0;
}

inline void session::store_word(frame_kind kind, std::byte* to) noexcept {
    frame{kind, window_.owed(), frames_out_, peer_number_}.store(to);
}
/// The frame with the word that `store_word` wrote is sent.
inline void session::sent_one() noexcept {
    window_.returned();
    window_.spend();
    ++frames_out_;
    ++counts_.posts;
}

inline session::sent session::judge(long answer) noexcept {
    if (answer == 0) [[likely]] {
        engine_.posted();
        return sent::yes;
    }
    if (is_busy(answer)) {
        stall();
        return sent::busy;
    }
    fail(errc::peer_lost);
    return sent::failed;
}
/// Precondition: not longer than the provider's inject limit.
inline session::sent session::send_bytes(const std::byte* from, std::size_t bytes) noexcept {
    return judge(::fi_inject(engine_.device().endpoint(), from, bytes, to_));
}
inline session::sent session::send_slot(slot& s, std::size_t bytes) noexcept {
    const sent how =
        judge(::fi_send(engine_.device().endpoint(), s.data, bytes, s.descriptor, to_, &s.scratch));
    if (how == sent::yes) {
        s.now = slot::use::sending;
        s.of = number_;
        ++staged_;
        engine_.given();
    }
    return how;
}

inline post_result session::post(const message_header& header, const const_buffers& payload) noexcept {
    if (phase_ != phase::ready || failure_) [[unlikely]]
        return post_result::failed;
    if (!can_write()) [[unlikely]]
        return no_room();
    const std::size_t bytes = frame_bytes + payload.size();
    const bool injects = bytes <= engine_.inject_limit();
    slot* staged = nullptr;
    if (!injects) {
        staged = engine_.slots().take();
        if (staged == nullptr) [[unlikely]] {
            stall();  // no slot of this link need come back
            return no_room();
        }
    }
    std::byte* const to = injects ? engine_.scratch() : staged->data;
    store_word(frame_kind::message, to);
    std::memcpy(to + frame_word_bytes, header.data(), header.size());
    copy_out(payload, 0, to + frame_bytes, payload.size());
    const sent how = injects ? send_bytes(to, bytes) : send_slot(*staged, bytes);
    if (how == sent::yes) [[likely]] {
        sent_one();
        ++counts_.messages;
        ++(injects ? counts_.injected : counts_.staged);
        return post_result::done;
    }
    if (staged != nullptr) engine_.slots().give(*staged);
    return how == sent::busy ? no_room() : post_result::failed;
}

/// A slot that was sent is unused again.
inline void session::slot_sent(int error) noexcept {
    if (error != 0) return fail(errc::peer_lost);
    if (want_writable_) mark_work();
}

inline bool session::can_send_control() const noexcept {
    return window_.credits() > 1 && can_return_credits();
}
/// The last credit may go, too, for others.
inline bool session::can_return_credits() const noexcept {
    return window_.credits() != 0 && !failure_ && !sent_bye_ && phase_ != phase::opening && !busy_;
}
/// Whether the peer waits for frames: also for those of a side that is closing.
inline bool session::is_heard() const noexcept {
    return !sent_bye_ && phase_ == phase::ready && !busy_ && peer_may_move();
}
/// Whether a frame that ends a get or put can be sent.
inline bool session::can_answer() const noexcept { return window_.credits() > 1 && is_heard(); }

// ---- a session receives

inline void session::attach(session_listener& listener) noexcept {
    inbox_.attach(listener);
    mark_work();
}

inline void session::recycle(slot& s) noexcept { engine_.recycle(s); }
inline void session::consumed(slot& s) noexcept {
    recycle(s);
    window_.owe();
}

inline void session::arrived(slot& s, const frame& f) noexcept {
    if (phase_ == phase::draining) [[unlikely]] {
        arrived_too_late(f);
        return recycle(s);
    }
    ++counts_.received;
    const std::uint32_t ahead = (f.sequence - frames_in_) & frame::sequence_mask;
    if (ahead != 0 || window_.granted() == 0) [[unlikely]]
        return arrived_early(s, f, ahead);
    accept_frame(s, f);
    if (!early_.empty()) [[unlikely]]
        take_early();
}

/// The next frame of this peer.
inline void session::accept_frame(slot& s, const frame& f) noexcept {
    if (!window_.admit(f.credits)) [[unlikely]] {
        recycle(s);
        return fail(errc::protocol_violation);
    }
    ++frames_in_;
    mark_work();
    if (f.kind == frame_kind::message) [[likely]] {
        return inbox_.push(s);
    }
    window_.owe();
    if (window_.peer_is_short()) wanted_ |= wants::credits_for_the_short;
    take_control(f, s);
    recycle(s);
}

inline unsigned session::poll(unsigned budget) noexcept {
    engine_.progress();
    list_node<work_tag>& work = *this;
    if (!work.linked()) return 0;
    work.unlink();
    return serve(budget);
}

/// Completes transfers and delivers messages. Returns how many.
inline unsigned session::serve(unsigned budget) noexcept {
    if (phase_ == phase::opening && failure_) [[unlikely]] {
        fail_opening({static_cast<errc>(failure_.code().value), 0, "greet"});
        return 1;
    }
    unsigned moved = transfers_.complete_finished(*this);
    if (matched_ != nullptr) moved += matched_->serve();
    moved += phase_ == phase::ready ? inbox_.deliver(budget, *this) : 0;
    if (phase_ != phase::ready) return moved;
    session_listener* const listener = inbox_.listener();
    const bool stalled = static_cast<list_node<stalled_tag>&>(*this).linked();
    if (want_writable_ && listener != nullptr && !stalled && can_write()) {
        want_writable_ = false;
        listener->writable();
        ++moved;
        if (phase_ != phase::ready) return moved;
    }
    send_owed_control();
    if (inbox_.listener() == nullptr) return moved;
    if (!transfers_.any_finished() && failure_.may_go_down(inbox_.empty(), engine_.empty_polls()) &&
        !lingers()) {
        close(failure_.code());
        return moved + 1;
    }
    if (failure_) [[unlikely]] {
        end_own_transfers();
        if (phase_ == phase::ready) mark_work();
    } else if (!inbox_.empty() || transfers_.any_finished()) {
        mark_work();
    }
    return moved;
}

// ---- the engine polls

inline unsigned engine::progress() noexcept {
    if (broken_ || breaks_) [[unlikely]] {
        if (!broken_) break_down();
        ++empty_polls_;  // nothing arrives any more: links end
        return 0;
    }
    if (receives_.queued() != 0) post_receives();
    ++epoch_;
    std::array<fi_cq_msg_entry, batch> entries;  // NOLINT: the provider writes them
    unsigned came = 0;
    while (came < 8 * batch) {
        const ssize_t got = ::fi_cq_read(device_.queue(), entries.data(), batch);
        if (got > 0) {
            for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) dispatch(entries[i]);
            came += static_cast<unsigned>(got);
            if (got == static_cast<ssize_t>(batch)) continue;
        } else if (got == -FI_EAVAIL && dispatch_error()) {
            ++came;
            continue;
        } else if (got < 0 && got != -FI_EAGAIN && got != -FI_EAVAIL) [[unlikely]] {
            must_break("read the completion queue", got);
        }
        ++empty_polls_;
        break;
    }
    if (matched_links_ != 0) came += progress_matched();
    if (!stalled_.empty()) [[unlikely]]
        pump_stalled();
    return came;
}

inline void engine::dispatch(const fi_cq_msg_entry& entry) noexcept {
    auto* const about = static_cast<operation*>(entry.op_context);
    if (about == nullptr) return;
    if (about->what == operation::kind::slot) return slot_over(static_cast<slot&>(*about), entry.len, 0);
    auto& t = static_cast<transfer&>(*about);
    t.owner->piece_over(t, 0);
}

inline void engine::slot_over(slot& s, std::size_t bytes, int error) noexcept {
    if (s.now == slot::use::sending) {
        session* const c = slot_back(s);
        if (c != nullptr) c->slot_sent(error);
        return;
    }
    s.now = slot::use::idle;
    s.bytes = static_cast<std::uint32_t>(bytes);
    receives_.arrived();
    frame f;
    session* c = error == 0 && bytes <= slots_.slot_bytes() && f.load(s.data, bytes) ? find(f.link) : nullptr;
    if (c != nullptr) [[likely]]
        return c->arrived(s, f);
    if (error == 0) ++table_.closed_totals().strangers;
    recycle(s);
}

inline session* engine::slot_back(slot& s) noexcept {
    --given_;
    session* const c = find(s.of);
    slots_.give(s);
    if (c == nullptr || !c->slot_back()) slots_.unreserve(1);
    return c;
}

inline void engine::recycle(slot& s) noexcept {
    receives_.recycle(s);
    if (receives_.queued() != 0 && !broken_) post_receives();
}

inline session* engine::find(std::uint64_t number) noexcept {
    session* c = table_.at(place_of(number));
    return c != nullptr && c->number() == number ? c : nullptr;
}

}  // namespace rdmacoro::detail::fabric
