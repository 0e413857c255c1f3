// How a connection of a verbs domain receives, and how it ends. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

namespace rdmacoro::detail::verbs {

inline core::core(engine& of, std::uint32_t index, std::uint32_t generation)
    : engine_(of),
      index_(index),
      generation_(generation),
      ring_(of.options().send_depth),
      chain_(new entry[most_chained]{}),
      chain_bytes_(new std::byte[most_chained * std::max<std::size_t>(of.device().inline_limit(), 64)]) {
    const std::size_t each = std::max<std::size_t>(of.device().inline_limit(), 64);
    for (std::size_t i = 0; i < most_chained; ++i) chain_[i].bytes = chain_bytes_.get() + i * each;
    timer_node::expired = [](timer_node& self) noexcept { static_cast<core&>(self).timer_expired(); };
    fd_handler::ready = [](fd_handler& self, std::uint32_t events) noexcept {
        static_cast<core&>(self).on_socket(events);
    };
}

inline core::~core() {
    engine_.owner().remove_timer(*this);
    no_longer_awaited();
    static_cast<list_node<all_tag>&>(*this).unlink();
    static_cast<list_node<dirty_tag>&>(*this).unlink();
    static_cast<list_node<work_tag>&>(*this).unlink();
    static_cast<list_node<leaving_tag>&>(*this).unlink();
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
    if (phase_ == phase::opening) return fail_opening(errc::timed_out, 0, "open");
    if (phase_ != phase::ready) {
        late_ = true;
        return;
    }
    if (failure_) return;
    if (want_writable_) {
        // Nothing has made room for long. The peer may take its time; but nobody tells of a queue pair that is broken. (Some
        // devices say nothing about the state when they are asked.)
        ibv_qp_attr state{};
        ibv_qp_init_attr made{};
        if (::ibv_query_qp(queue_pair_.get(), &state, IBV_QP_STATE, &made) != 0 ||
            state.qp_state == IBV_QPS_ERR || state.qp_state == IBV_QPS_SQE)
            return fail(errc::peer_lost);
    }
    const duration pause = engine_.options().keepalive;
    if (pause > duration::zero()) watch_silence();
    if (!failure_ && (want_writable_ || pause > duration::zero()))
        set_timer(pause > duration::zero() ? pause : patience_with_silence);
}

/// A write of no bytes needs nothing of the peer but its device: no slot, no credit, no scheduler.
inline void core::watch_silence() noexcept {
    if (engine_.device().iwarp()) return;
    if (completed_ != seen_completed_ || counts_.received != seen_received_) {
        seen_completed_ = completed_;
        seen_received_ = counts_.received;
        asked_ = silent_ = 0;
        return;
    }
    if (asked_ > completed_) {
        constexpr unsigned most_silent = 3;
        if (++silent_ == most_silent && engine_.device().retries_for_ever()) fail(errc::peer_lost);
        return;
    }
    if (room(0)) {
        entry& e = next_entry();
        e.piece = {};
        e.request.opcode = IBV_WR_RDMA_WRITE;
        e.request.wr.rdma = {};
        chain(e, 0, nullptr, nullptr, true);
        flush();
    }
    asked_ = posted_;  // without room something is under way that asks for a completion
    silent_ = 0;
}

// ---- receiving

inline void core::attach(core_listener& up) noexcept {
    up_ = &up;
    mark_work();
}

/// A slot that the peer used is consumed; the peer hears of it once the device has another in its place.
inline void core::freed_credit() noexcept {
    if (engine_.has_surplus()) {
        ++owed_;
        return;
    }
    if (freed_in_ != engine_.receives_posted()) {
        owed_ += std::exchange(freed_, 0);
        freed_in_ = engine_.receives_posted();
    }
    ++freed_;
}

inline void core::arrived(slot& s, std::uint32_t bytes) noexcept {
    if (phase_ == phase::draining || phase_ == phase::leaving) [[unlikely]]
        return arrived_too_late(s, bytes);
    ++counts_.received;
    frame f;
    if (!f.load(s.data, bytes) || granted_ == 0 || f.credits > most_credits_ - credits_) [[unlikely]] {
        engine_.recycle(s);
        return fail(errc::protocol_violation);
    }
    --granted_;
    credits_ += f.credits;
    mark_work();
    if (!std::exchange(may_send_, true) && phase_ == phase::opening && connected_) become_ready();
    if (f.kind == frame_kind::message) [[likely]] {
        s.bytes = bytes;
        inbound_.push_back(s);
        return;
    }
    engine_.recycle(s);
    freed_credit();
    if (f.kind == frame_kind::flush) {
        if (std::exchange(want_flushed_, true)) fail(errc::protocol_violation);  // one at a time
    } else if (f.kind == frame_kind::flushed) {
        flushed();
    }
}

/// Nobody listens any more, but the two ends still tell each other what has arrived.
inline void core::arrived_too_late(slot& s, std::uint32_t bytes) noexcept {
    frame f;
    if (phase_ == phase::draining && f.load(s.data, bytes) && granted_ != 0 &&
        f.credits <= most_credits_ - credits_) {
        --granted_;
        credits_ += f.credits;
        if (f.kind == frame_kind::flushed && flushes_answered_ < flushes_sent_) ++flushes_answered_;
        if (f.kind == frame_kind::flush && can_send_control()) send_control(frame_kind::flushed);
    }
    engine_.recycle(s);
}

inline lent_buffer core::keep() noexcept {
    if (current_ == nullptr || kept_ || !engine_.lend(*current_)) return {};
    kept_ = true;
    freed_credit();
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
    while (transfer* t = finished_.front()) {
        completion* c = t->done;
        const std::error_code code = t->code;
        give_back(*t);
        c->done(*c, code);
        ++moved;
    }
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
        freed_credit();
    }
    if (phase_ != phase::ready) return moved;
    if (want_writable_ && up_ != nullptr && can_write()) {
        want_writable_ = false;
        up_->writable();
        ++moved;
        if (phase_ != phase::ready) return moved;
    }
    if (partial_ != 0) pump();
    say_control();
    const bool listened_to = up_ != nullptr;
    // What came before the end is handed up first, but not for a peer that broke the rules.
    const bool handed_up =
        inbound_.empty() || (failure_ && std::error_code(failure_) == errc::protocol_violation);
    if (failure_ && listened_to && handed_up && finished_.front() == nullptr && engine_.dry() > failed_dry_) {
        close(failure_);
        return moved + 1;
    }
    if (listened_to && (!inbound_.empty() || failure_ || !finished_.empty())) mark_work();
    if (want_hello_ || want_flushed_ || (freed_ + owed_ >= engine_.options().credits / 2)) mark_work();
    return moved;
}

// ---- ending

inline void core::to_error_state() noexcept {
    if (queue_pair_ == nullptr || std::exchange(in_error_, true)) return;
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_ERR;
    static_cast<void>(::ibv_modify_qp(queue_pair_.get(), &wanted, IBV_QP_STATE));
}

inline void core::fail(errc why) noexcept {
    if (failure_ || phase_ == phase::leaving) return;
    failure_ = why;
    failed_dry_ = engine_.dry();
    to_error_state();
    mark_work();
}

inline void core::peer_gone() noexcept {
    if (phase_ == phase::opening) return fail_opening(errc::peer_lost, 0, "open");
    fail(errc::peer_lost);
}

/// Returns when the device touches no memory of a user's any more.
inline void core::quiesce() noexcept {
    to_error_state();
    flush();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(250);
    while (transfer_requests_ != 0 && std::chrono::steady_clock::now() < limit) engine_.progress();
    if (transfer_requests_ != 0) destroy_queue_pair();
}

inline void core::close(std::error_code reason) noexcept {
    if (phase_ != phase::ready) return;
    const bool gracefully = !failure_ && transfer_requests_ == 0;
    closing_ = reason;
    if (transfer_requests_ != 0) quiesce();
    phase_ = phase::draining;
    core_listener* up = std::exchange(up_, nullptr);
    complete_all(reason);
    let_go(gracefully);
    if (up != nullptr) up->link_down(reason);
}

inline void core::abandon() noexcept {
    if (phase_ == phase::opening) {
        opener_ = nullptr;
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
}

/// The connection is nobody's any more, but for the object itself. Gracefully: what was sent last still goes out.
inline void core::let_go(bool gracefully) noexcept {
    no_longer_awaited();
    drop_inbound();
    static_cast<list_node<work_tag>&>(*this).unlink();
    want_hello_ = want_flush_ = want_flushed_ = want_writable_ = false;
    engine_.leaves(*this);
    if (gracefully && completed_ != posted_ && can_send_control()) {
        phase_ = phase::draining;
        // Over iWARP a completion says nothing about arrival: there the peer does.
        const bool asks = engine_.device().iwarp();
        if (asks) ++flushes_sent_;
        send_control(asks ? frame_kind::flush : frame_kind::credit, true);
        flush();
        drained_at_ = posted_;
        set_timer(std::chrono::seconds(1));
        // Most often it is a matter of microseconds; then the peer hears of the end at once, whatever our scheduler does next.
        const auto limit = std::chrono::steady_clock::now() + std::chrono::microseconds(500);
        while (!drained() && std::chrono::steady_clock::now() < limit) engine_.progress();
        if (drained()) start_leaving();
    } else {
        start_leaving();
    }
}

inline bool core::drained() const noexcept {
    return failure_ || late_ ||
           (completed_ >= drained_at_ && (!engine_.device().iwarp() || flushes_answered_ == flushes_sent_));
}

inline void core::start_leaving() noexcept {
    phase_ = phase::leaving;
    late_ = false;
    to_error_state();
    flush();
    post_last_request();
    if (id_ != nullptr && connected_) static_cast<void>(::rdma_disconnect(id_));
    if (socket_ >= 0) {
        engine_.unwatch(*this);
        ::close(std::exchange(socket_, -1));
    }
    exchange_.reset();
    set_timer(std::chrono::seconds(1));
}

/// What was sent without asking for a completion may be over without one. The completion of a last request, whatever it
/// says, comes behind all that. Over iWARP it need not come: siw ends no request that was posted after the error.
inline void core::post_last_request() noexcept {
    if (queue_pair_ == nullptr || engine_.device().iwarp() || completed_ == posted_ || !room(0)) return;
    entry& e = chain_[0];
    e.request.opcode = IBV_WR_SEND;
    e.piece = {};
    ring_[posted_ & (ring_.size() - 1)] = {};
    e.request.wr_id = request_id(posted_);
    e.request.next = nullptr;
    e.request.sg_list = nullptr;
    e.request.num_sge = 0;
    e.request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* refused = nullptr;
    if (::ibv_post_send(queue_pair_.get(), &e.request, &refused) == 0) ++posted_;
}

inline void core::destroy_queue_pair() noexcept {
    if (queue_pair_ == nullptr) return;
    engine_.remove_queue_pair(*this);
    queue_pair_.reset();
    chained_ = 0;
    for (; completed_ < posted_; ++completed_) {
        holding& held = ring_[completed_ & (ring_.size() - 1)];
        if (held.staged != nullptr) engine_.slots().give(*held.staged);
        if (held.moves != nullptr) piece_over(*held.moves, IBV_WC_WR_FLUSH_ERR);
        held = {};
    }
    staged_ = 0;
    // Whoever owns this may keep it for long.
    chain_.reset();
    chain_bytes_.reset();
    ring_ = {};
    if (std::exchange(holds_resources_, false)) engine_.release_resources();
}

inline bool core::leave_step(bool in_a_hurry) noexcept {
    if (phase_ == phase::draining) {
        if (!drained() && !in_a_hurry) return false;
        start_leaving();
    }
    if (phase_ != phase::leaving) return false;
    const bool receives_over = last_receive_over_ || !engine_.device().tells_last_receive() || !connected_;
    const bool sends_over = completed_ == posted_ || engine_.device().iwarp();
    if (in_a_hurry || late_ || (sends_over && receives_over)) destroy_queue_pair();
    if (queue_pair_ != nullptr) return false;
    if (std::exchange(holds_resources_, false)) engine_.release_resources();
    if (id_ != nullptr && (in_a_hurry || late_ || cm_over_ || !connected_)) {
        ::rdma_destroy_id(std::exchange(id_, nullptr));
    }
    return id_ == nullptr && !owned_;
}

/// Whether the device has yet to send or to finish something.
inline bool core::busy_leaving() const noexcept { return queue_pair_ != nullptr; }

}  // namespace rdmacoro::detail::verbs
