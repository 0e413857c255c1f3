// The path of a message through a verbs domain: the functions that run for each message. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <array>

namespace rdmacoro::detail::verbs {

// ---- a session sends

inline void session::mark_dirty() noexcept {
    if (!static_cast<list_node<dirty_tag>&>(*this).linked()) engine_.dirty(*this);
}
inline void session::mark_work() noexcept {
    if (!static_cast<list_node<work_tag>&>(*this).linked()) engine_.work(*this);
}

inline bool session::can_write() const noexcept {
    return window_.credits() > reserved_credits && room(8) && staged_ < most_staged &&
           transfers_.partial_puts() == 0 && may_send_;
}

/// Credits of slots that are with the device by now.
inline std::uint16_t session::take_owed_credits() noexcept {
    window_.settle(receives_->epoch());
    const std::uint16_t owed = window_.owed();
    window_.returned();
    return owed;
}

inline std::uint64_t session::request_id(std::uint64_t sequence) const noexcept {
    return (std::uint64_t{1} << 63) | (std::uint64_t{generation_} << 48) | (std::uint64_t{place_} << 32) |
           (sequence & 0xffffffff);
}

inline session::entry& session::next_entry() noexcept {
    if (chained_ == most_chained) flush();
    return chain_[chained_];
}

/// The entry is complete except for its place in the chain.
inline void session::chain(entry& e, unsigned flags, slot* staged, transfer* moves, bool signal) noexcept {
    const std::uint64_t sequence = posted_++;
    ring_[sequence & (ring_.size() - 1)] = {staged, moves, moves != nullptr ? e.piece.length : 0};
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

/// The first few posts since the last poll go at once, each with a doorbell of its own: the caller may compute for long before
/// it polls again. Later posts of the same turn are handed over together.
inline void session::enqueue(entry& e, unsigned flags, slot* staged, bool signal) noexcept {
    chain(e, flags, staged, nullptr, signal);
    if (posted_in_ != engine_.epoch()) {
        posted_in_ = engine_.epoch();
        posted_at_once_ = 0;
    }
    if (posted_at_once_ == doorbells_of_a_turn) return mark_dirty();
    ++posted_at_once_;
    flush();
}

inline void session::flush() noexcept {
    if (chained_ == 0) return;
    const std::uint64_t first = posted_ - std::exchange(chained_, 0u);
    // Some devices complete work requests that are posted to a queue pair in its error state as if they had succeeded.
    if (in_error_ || queue_pair_ == nullptr) return release_unposted(first);
    ibv_send_wr* refused = nullptr;
    ++counts_.posts;
    if (::ibv_post_send(queue_pair_.get(), &chain_[0].request, &refused) == 0) [[likely]]
        return;
    post_failed(first, refused);
}

inline post_result session::post(const message_header& header, const const_buffers& payload) noexcept {
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
    window_.spend();
    ++counts_.messages;
    enqueue(e, flags, staged, false);
    return post_result::done;
}

inline bool session::can_send_control() const noexcept {
    return window_.credits() != 0 && room(2) && may_send_ && !failure_ && queue_pair_ != nullptr;
}

inline void session::send_owed_control() noexcept {
    window_.settle(receives_->epoch());
    if (want_hello_ && can_send_control()) want_hello_ = !send_control(frame_kind::credit);
    while (want_flushed_ != 0 && can_send_control() && send_control(frame_kind::flushed)) --want_flushed_;
    if (want_flush_ && flushes_sent_ == flushes_answered_ && can_send_control() &&
        send_control(frame_kind::flush)) {
        want_flush_ = false;
        ++flushes_sent_;
    }
    if (window_.return_due() && can_send_control()) static_cast<void>(send_control(frame_kind::credit));
}

/// The device has completed all work requests up to this one, but for `reads_`; `outcome` is that of the last.
inline void session::sent(std::uint32_t sequence, ibv_wc_status outcome) noexcept {
    if (outcome != IBV_WC_SUCCESS) [[unlikely]]
        request_failed(outcome);
    if (!reads_.empty()) [[unlikely]]
        read_over(sequence, outcome);
    const std::uint64_t last =
        completed_ + static_cast<std::uint32_t>(sequence - static_cast<std::uint32_t>(completed_));
    if (last >= posted_) return;
    for (; completed_ <= last; ++completed_) {
        holding& held = ring_[completed_ & (ring_.size() - 1)];
        if (held.staged != nullptr) {
            --staged_;
            engine_.slots().give(*held.staged);
        }
        // Some devices report work requests that they have flushed as successful: after a failure, success does not count.
        ibv_wc_status how = completed_ == last ? outcome : IBV_WC_SUCCESS;
        if (failure_ && how == IBV_WC_SUCCESS) how = IBV_WC_WR_FLUSH_ERR;
        const holding ended = std::exchange(held, holding{});
        if (ended.moves != nullptr) piece_over(ended, how);
    }
    if (transfers_.partial() != 0) pump();
    if (want_writable_) mark_work();
}

// ---- a session receives

inline void session::attach(session_listener& listener) noexcept {
    inbox_.attach(listener);
    mark_work();
}

/// A frame of the peer is consumed; its credit is returned once the device has another slot in its place.
inline void session::freed_credit() noexcept {
    if (receives_->surplus()) {
        window_.owe();
    } else {
        window_.owe_after(receives_->epoch());
    }
}
inline void session::recycle(slot& s) noexcept { s.queue->recycle(s); }
inline void session::consumed(slot& s) noexcept {
    recycle(s);
    freed_credit();
}

inline void session::arrived(slot& s, std::uint32_t bytes) noexcept {
    if (phase_ == phase::draining || phase_ == phase::leaving) [[unlikely]]
        return arrived_too_late(s, bytes);
    ++counts_.received;
    frame f;
    if (!f.load(s.data, bytes) || !window_.admit(f.credits)) [[unlikely]] {
        recycle(s);
        return fail(errc::protocol_violation);
    }
    mark_work();
    if (!std::exchange(may_send_, true) && phase_ == phase::opening && connected_) become_ready();
    if (f.kind == frame_kind::message) [[likely]] {
        s.bytes = bytes;
        return inbox_.push(s);
    }
    consumed(s);
    take_control(f.kind);
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
    unsigned moved = transfers_.complete_finished(*this);
    moved += phase_ == phase::ready ? inbox_.deliver(budget, *this) : 0;
    if (phase_ != phase::ready) return moved;
    session_listener* const listener = inbox_.listener();
    if (want_writable_ && listener != nullptr && can_write()) {
        want_writable_ = false;
        listener->writable();
        ++moved;
        if (phase_ != phase::ready) return moved;
    }
    if (transfers_.partial() != 0) pump();
    send_owed_control();
    if (inbox_.listener() != nullptr) {
        if (!transfers_.any_finished() && failure_.may_go_down(inbox_.empty(), taken())) {
            close(failure_.code());
            return moved + 1;
        }
        // This side's transfers on a link that has failed end also while messages that came before wait for its user.
        if (failure_ && transfer_requests_ == 0 && failure_.may_go_down(true, taken())) [[unlikely]] {
            complete_all(failure_.code());
            if (phase_ != phase::ready) return moved;
        }
        if (failure_ || !inbox_.empty() || transfers_.any_finished()) mark_work();
    }
    if (want_hello_ || want_flushed_ != 0 || window_.return_due_soon()) mark_work();
    return moved;
}

// ---- the engine polls

/// Rings the doorbells of work requests that were chained.
inline void engine::ring() noexcept {
    while (session* c = dirty_.pop_front()) c->flush();
}

/// Hands slots that were consumed to the device again.
inline void engine::post_receives() noexcept {
    if (receive_totals_.refills.empty()) return;
    intrusive_list<receive_queue, refill_tag> turn;
    turn.splice_back(receive_totals_.refills);
    while (receive_queue* one = turn.pop_front()) one->post();
}

inline unsigned engine::progress() noexcept {
    ring();
    post_receives();
    ++epoch_;
    unsigned came = 0;
    for (const auto& one : banks_) came += progress(*one);
    return came;
}

inline unsigned engine::progress(bank& of) noexcept {
    std::array<ibv_wc, batch> completions;  // NOLINT: the device writes them
    unsigned came = 0;
    for (int got = batch; got == batch && came < 8 * batch;) {
        got = ::ibv_poll_cq(of.queue.get(), batch, completions.data());
        if (got < 0) [[unlikely]] {
            queue_failed_ = true;  // the domain ends in the next poll; here no listener is called
            fail_all(errc::peer_lost);
            of.taken = of.all_taken_at();  // nothing comes any more
            break;
        }
        for (int i = 0; i < got; ++i) dispatch(completions[static_cast<std::size_t>(i)]);
        came += static_cast<unsigned>(got);
        of.taken += got < batch ? of.length : batch;
    }
    return came;
}

// The number of a completion identifies its work request. Of sends: the highest bit, the connection's generation (15 bits) and
// place (16), and the low half of its sequence number. Of receives: the slot's address.
inline void engine::dispatch(const ibv_wc& wc) noexcept {
    if ((wc.wr_id >> 63) != 0) {
        session* c = table_.at(static_cast<std::uint32_t>(wc.wr_id >> 32) & 0xffff);
        if (c != nullptr && c->generation() == (static_cast<std::uint32_t>(wc.wr_id >> 48) & 0x7fff))
            c->sent(static_cast<std::uint32_t>(wc.wr_id), wc.status);
        return;
    }
    slot& s = *reinterpret_cast<slot*>(wc.wr_id);
    if (!s.queue->arrived(s)) return;
    session* c = by_number_.find(wc.qp_num);
    // A write with an immediate value takes a slot, writes nothing into it, and has the length of the write.
    const bool is_frame = wc.opcode == IBV_WC_RECV && (wc.wc_flags & IBV_WC_WITH_IMM) == 0 &&
                          wc.byte_len <= slots_.slot_bytes();
    if (wc.status == IBV_WC_SUCCESS && c != nullptr && is_frame) [[likely]]
        return c->arrived(s, wc.byte_len);
    s.queue->recycle(s);
    if (c != nullptr) c->fail(wc.status != IBV_WC_SUCCESS ? errc_of(wc.status) : errc::protocol_violation);
}

}  // namespace rdmacoro::detail::verbs
