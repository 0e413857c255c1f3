// How a connection of a libfabric domain sends. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

namespace rdmacoro::detail::fabric {

inline void core::mark_work() noexcept {
    if (!static_cast<list_node<work_tag>&>(*this).linked()) engine_.work(*this);
}
/// The provider had no room: whatever waits is tried again at the next poll.
inline void core::stall() noexcept {
    ++counts_.retries;
    if (!static_cast<list_node<stalled_tag>&>(*this).linked()) engine_.stalled(*this);
}

inline bool core::can_write() const noexcept {
    return credits_ > reserved_credits && staged_ < most_staged && partial_puts_ == 0;
}
inline post_result core::no_room() noexcept {
    want_writable_ = true;
    return post_result::retry;
}

inline void core::store_word(frame_kind kind, std::byte* to) noexcept {
    frame{kind, static_cast<std::uint16_t>(owed_), frames_out_, peer_number_}.store(to);
}
/// What `store_word` said is on its way.
inline void core::sent_one() noexcept {
    granted_ += std::exchange(owed_, 0);
    ++frames_out_;
    --credits_;
    ++counts_.posts;
}

inline core::sent core::judge(long answer) noexcept {
    if (answer == 0) [[likely]]
        return sent::yes;
    if (is_busy(answer)) {
        stall();
        return sent::busy;
    }
    fail(errc::peer_lost);
    return sent::failed;
}
/// Not longer than the provider's inject limit.
inline core::sent core::send_bytes(const std::byte* from, std::size_t bytes) noexcept {
    return judge(::fi_inject(engine_.device().endpoint(), from, bytes, to_));
}
inline core::sent core::send_slot(slot& s, std::size_t bytes) noexcept {
    const sent how =
        judge(::fi_send(engine_.device().endpoint(), s.data, bytes, s.descriptor, to_, &s.scratch));
    if (how == sent::yes) {
        s.now = slot::use::sending;
        s.of = number_;
        ++staged_;
        engine_.sends_slot();
    }
    return how;
}

inline post_result core::post(const message_header& header, const const_buffers& payload) noexcept {
    if (phase_ != phase::ready || failure_) [[unlikely]]
        return post_result::failed;
    if (!can_write()) [[unlikely]]
        return no_room();
    const std::size_t bytes = frame_bytes + payload.size();
    const bool injects = bytes <= engine_.inject_limit();
    slot* staged = nullptr;
    if (!injects) {
        staged = engine_.slots().take();
        if (staged == nullptr) [[unlikely]]
            return no_room();
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

/// A slot that was sent is free again.
inline void core::slot_sent(int error) noexcept {
    --staged_;
    if (error != 0) return fail(errc::peer_lost);
    if (want_writable_) mark_work();
}

// ---- what the two ends say for themselves

inline bool core::can_send_control() const noexcept {
    return credits_ > 1 && !failure_ && !said_bye_ && phase_ != phase::opening && !busy_;
}

/// Precondition: `can_send_control()`, or it is the first word or the last. `fill` writes the `bytes` behind the word.
template <class Fill>
bool core::send_control(frame_kind kind, std::size_t bytes, Fill fill) noexcept {
    const std::size_t whole = frame_word_bytes + bytes;
    const bool injects = whole <= engine_.inject_limit();
    slot* staged = injects ? nullptr : engine_.slots().take();
    if (!injects && staged == nullptr) {
        stall();
        return false;
    }
    std::byte* const to = injects ? engine_.scratch() : staged->data;
    store_word(kind, to);
    fill(to + frame_word_bytes);
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

inline void core::say_control() noexcept {
    if (!answers_.empty()) say_answers();
    if (!asking_.empty()) ask_peer();
    if (matched_ != nullptr) matched_->say();
    if (owed_ >= engine_.options().credits / 2 && can_send_control())
        static_cast<void>(send_control(frame_kind::credit, 0, [](std::byte*) noexcept {}));
}

/// The provider may have room again.
inline void core::pump() noexcept {
    busy_ = false;
    if (phase_ == phase::draining) return say_bye();
    if (phase_ == phase::opening) return greet();
    if (phase_ != phase::ready) return;
    if (partial_ != 0 && !failure_) {
        for (transfer* t = moving_.front(); t != nullptr && partial_ != 0;) {
            transfer* after = moving_.next(*t);
            if (t->partial && !t->out) post_piece(*t);
            if (static_cast<list_node<stalled_tag>&>(*this).linked()) break;
            t = after;
        }
    }
    say_control();
    if (want_writable_) mark_work();
}

}  // namespace rdmacoro::detail::fabric
