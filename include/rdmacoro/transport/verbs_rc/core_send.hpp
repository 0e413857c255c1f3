// How a connection of a verbs domain sends. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

namespace rdmacoro::detail::verbs {

inline void core::mark_dirty() noexcept {
    if (!static_cast<list_node<dirty_tag>&>(*this).linked()) engine_.dirty(*this);
}
inline void core::mark_work() noexcept {
    if (!static_cast<list_node<work_tag>&>(*this).linked()) engine_.work(*this);
}

inline bool core::can_write() const noexcept {
    return credits_ > reserved_credits && room(8) && staged_ < most_staged && partial_puts_ == 0 && may_send_;
}

inline post_result core::no_room() noexcept {
    want_writable_ = true;
    if (!timer_node::queued()) set_timer(patience_with_silence);
    return post_result::retry;
}

/// Credits of slots that the device has by now.
inline std::uint16_t core::take_owed_credits() noexcept {
    if (freed_ != 0 && freed_in_ != engine_.receives_posted()) owed_ += std::exchange(freed_, 0);
    granted_ += owed_;
    return static_cast<std::uint16_t>(std::exchange(owed_, 0));
}

inline std::uint64_t core::request_id(std::uint64_t sequence) const noexcept {
    return (std::uint64_t{1} << 63) | (std::uint64_t{generation_} << 48) | (std::uint64_t{index_} << 32) |
           (sequence & 0xffffffff);
}

inline core::entry& core::next_entry() noexcept {
    if (chained_ == most_chained) flush();
    return chain_[chained_];
}

/// The entry is complete but for what makes it part of the chain.
inline void core::chain(entry& e, unsigned flags, slot* staged, transfer* moves, bool signal) noexcept {
    const std::uint64_t sequence = posted_++;
    ring_[sequence & (ring_.size() - 1)] = {staged, moves};
    ++counts_.work_requests;
    ++unsignalled_;
    if (staged != nullptr) {
        ++staged_;
        ++unsignalled_slots_;
    }
    if (signal || unsignalled_ >= ring_.size() / 4 || unsignalled_slots_ >= most_staged / 4) {
        flags |= IBV_SEND_SIGNALED;
        unsignalled_ = unsignalled_slots_ = 0;
        ++counts_.signalled;
    }
    ibv_send_wr& request = e.request;
    request.wr_id = request_id(sequence);
    request.next = nullptr;
    request.sg_list = &e.piece;
    request.num_sge = e.piece.length != 0 ? 1 : 0;
    request.send_flags = flags;
    if (chained_ != 0) chain_[chained_ - 1].request.next = &request;
    ++chained_;
}

/// The first few posts since the last poll go at once, each with a doorbell of its own: who posted them may compute for long
/// before it polls again. What follows in the same turn is handed over together.
inline void core::enqueue(entry& e, unsigned flags, slot* staged, bool signal) noexcept {
    chain(e, flags, staged, nullptr, signal);
    if (posted_in_ != engine_.epoch()) {
        posted_in_ = engine_.epoch();
        posted_at_once_ = 0;
    }
    if (posted_at_once_ == doorbells_of_a_turn) return mark_dirty();
    ++posted_at_once_;
    flush();
}

inline void core::flush() noexcept {
    if (chained_ == 0) return;
    const std::uint64_t first = posted_ - std::exchange(chained_, 0u);
    // Some devices complete what is posted to a queue pair in its error state as if it had succeeded.
    if (in_error_ || queue_pair_ == nullptr) return release_unposted(first);
    ibv_send_wr* refused = nullptr;
    ++counts_.posts;
    if (::ibv_post_send(queue_pair_.get(), &chain_[0].request, &refused) == 0) [[likely]]
        return;
    // There is room by our count, so the queue pair is broken.
    const auto low = static_cast<std::uint32_t>(refused->wr_id);
    release_unposted(first + static_cast<std::uint32_t>(low - static_cast<std::uint32_t>(first)));
    fail(errc::peer_lost);
}

/// The device does not know of the work requests from this one on: they are over now.
inline void core::release_unposted(std::uint64_t from) noexcept {
    while (posted_ > from) {
        holding& held = ring_[--posted_ & (ring_.size() - 1)];
        if (held.staged != nullptr) {
            --staged_;
            engine_.slots().give(*held.staged);
        }
        transfer* moves = held.moves;
        held = {};
        if (moves != nullptr) piece_over(*moves, IBV_WC_WR_FLUSH_ERR);
    }
}

inline post_result core::post(const message_header& header, const const_buffers& payload) noexcept {
    if (phase_ != phase::ready || failure_) [[unlikely]]
        return post_result::failed;
    if (!can_write()) [[unlikely]]
        return no_room();
    const std::size_t bytes = frame_bytes + payload.size();
    entry& e = next_entry();
    slot* staged = nullptr;
    unsigned flags = 0;
    if (bytes <= engine_.device().inline_limit()) {
        e.piece = {reinterpret_cast<std::uintptr_t>(e.bytes), static_cast<std::uint32_t>(bytes), 0};
        flags = IBV_SEND_INLINE;
        ++counts_.inlined;
    } else {
        staged = engine_.slots().take();
        if (staged == nullptr) [[unlikely]]
            return no_room();
        e.piece = {reinterpret_cast<std::uintptr_t>(staged->data), static_cast<std::uint32_t>(bytes),
                   staged->lkey};
        ++counts_.staged;
    }
    std::byte* const to = staged != nullptr ? staged->data : e.bytes;
    frame{frame_kind::message, take_owed_credits()}.store(to);
    std::memcpy(to + frame_word_bytes, header.data(), header.size());
    copy_out(payload, 0, to + frame_bytes, payload.size());
    e.request.opcode = IBV_WR_SEND;
    --credits_;
    ++counts_.messages;
    enqueue(e, flags, staged, false);
    return post_result::done;
}

// ---- what the two ends say for themselves

inline bool core::can_send_control() const noexcept {
    return credits_ != 0 && room(2) && may_send_ && !failure_ && queue_pair_ != nullptr;
}

/// Precondition: `can_send_control()`.
inline void core::send_control(frame_kind kind, bool signal) noexcept {
    entry& e = next_entry();
    frame{kind, take_owed_credits()}.store(e.bytes);
    unsigned flags = IBV_SEND_INLINE;
    e.piece = {reinterpret_cast<std::uintptr_t>(e.bytes), frame_word_bytes, 0};
    slot* staged = nullptr;
    if (engine_.device().inline_limit() < frame_word_bytes) {
        staged = engine_.slots().take();
        if (staged == nullptr) return;
        std::memcpy(staged->data, e.bytes, frame_word_bytes);
        e.piece = {reinterpret_cast<std::uintptr_t>(staged->data), frame_word_bytes, staged->lkey};
        flags = 0;
    }
    e.request.opcode = IBV_WR_SEND;
    --credits_;
    ++counts_.control_frames;
    enqueue(e, flags, staged, signal);
}

inline void core::say_control() noexcept {
    if (freed_ != 0 && freed_in_ != engine_.receives_posted()) owed_ += std::exchange(freed_, 0);
    if (want_hello_ && can_send_control()) {
        want_hello_ = false;
        send_control(frame_kind::credit);
    }
    if (want_flushed_ && can_send_control()) {
        want_flushed_ = false;
        send_control(frame_kind::flushed);
    }
    if (want_flush_ && flushes_sent_ == flushes_answered_ && can_send_control()) {
        want_flush_ = false;
        ++flushes_sent_;
        send_control(frame_kind::flush);
    }
    if (owed_ >= engine_.options().credits / 2 && can_send_control()) send_control(frame_kind::credit);
}

/// The device is done with all work requests up to this one, and says how the last went.
inline void core::sent(std::uint32_t sequence, ibv_wc_status outcome) noexcept {
    const std::uint64_t last =
        completed_ + static_cast<std::uint32_t>(sequence - static_cast<std::uint32_t>(completed_));
    if (last >= posted_) return;
    // The one transfer ends with what was refused; for the others the peer is gone: one that dies takes its memory back first.
    if (outcome != IBV_WC_SUCCESS && outcome != IBV_WC_WR_FLUSH_ERR) [[unlikely]]
        fail(outcome == IBV_WC_REM_ACCESS_ERR ? errc::peer_lost : errc_of(outcome));
    for (; completed_ <= last; ++completed_) {
        holding& held = ring_[completed_ & (ring_.size() - 1)];
        if (held.staged != nullptr) {
            --staged_;
            engine_.slots().give(*held.staged);
        }
        // What ends well behind a failure did not: some devices say so of what they have flushed.
        ibv_wc_status how = completed_ == last ? outcome : IBV_WC_SUCCESS;
        if (failure_ && how == IBV_WC_SUCCESS) how = IBV_WC_WR_FLUSH_ERR;
        if (held.moves != nullptr) piece_over(*held.moves, how);
        held = {};
    }
    if (partial_ != 0) pump();
    if (want_writable_) mark_work();
}

}  // namespace rdmacoro::detail::verbs
