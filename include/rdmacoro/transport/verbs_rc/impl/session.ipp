// How a connection of a verbs domain begins and ends, and the rare cases of its sending and receiving.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace rdmacoro::detail::verbs {

RDMACORO_DECL session::session(engine& of, std::uint32_t place, std::uint32_t generation)
    : engine_(of),
      place_(place),
      generation_(generation),
      ring_(of.options().send_depth),
      chain_(new entry[most_chained]{}),
      chain_bytes_(new std::byte[most_chained * std::max<std::size_t>(of.device().inline_limit(), 64)]),
      timer_(of.owner(), this, [](void* self) noexcept { static_cast<session*>(self)->timer_expired(); }),
      awaited_(of.watching()),
      socket_(of.watching(), *this) {
    const std::size_t each = std::max<std::size_t>(of.device().inline_limit(), 64);
    if (of.device().iwarp()) reads_.reserve(of.options().send_depth + std::size_t{of.device().read_depth()});
    for (std::size_t i = 0; i < most_chained; ++i) chain_[i].bytes = chain_bytes_.get() + i * each;
    fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<session&>(self).on_socket();
    };
}

RDMACORO_DECL session::~session() {
    static_cast<list_node<connection_tag>&>(*this).unlink();
    static_cast<list_node<dirty_tag>&>(*this).unlink();
    static_cast<list_node<work_tag>&>(*this).unlink();
    static_cast<list_node<leaving_tag>&>(*this).unlink();
    static_cast<list_node<pending_tag>&>(*this).unlink();
}

RDMACORO_DECL std::string session::peer_name() const {
    return peer_.bytes != 0 ? peer_.url("verbs") : std::string("a closed connection");
}

RDMACORO_COLD std::uint8_t session::peer_host() const noexcept { return host_hash(peer_); }

RDMACORO_DECL void session::timer_expired() noexcept {
    if (phase_ == phase::opening) return fail_opening(errc::timed_out, 0, "open");
    if (phase_ != phase::ready) {
        late_ = true;
        return;
    }
    if (failure_) return;
    if (in_error_) return fail(errc::peer_lost);  // see `request_failed`
    if (want_writable_) {
        // There has been no room for long. The peer may be slow; but no event reports a queue pair that is broken. (Some
        // devices do not report the state when they are asked.)
        ibv_qp_attr state{};
        ibv_qp_init_attr made{};
        if (::ibv_query_qp(queue_pair_.get(), &state, IBV_QP_STATE, &made) != 0 ||
            state.qp_state == IBV_QPS_ERR || state.qp_state == IBV_QPS_SQE)
            return fail(errc::peer_lost);
    }
    if (want_writable_) mark_work();  // what it waits for may be memory
    const duration pause = engine_.options().keepalive;
    if (pause > duration::zero()) watch_silence();
    if (!failure_ && (want_writable_ || pause > duration::zero()))
        timer_.set(pause > duration::zero() ? pause : patience_with_silence);
}

/// Posts a write of no bytes after a time without progress: the peer's device answers it without a slot, a credit or the peer's
/// scheduler. Over iWARP a write is over when TCP has taken it, so there it is a read of no bytes.
RDMACORO_DECL void session::watch_silence() noexcept {
    if (completed_ != seen_completed_ || counts_.received != seen_received_) {
        seen_completed_ = completed_;
        seen_received_ = counts_.received;
        asked_ = silent_ = 0;
        return;
    }
    if (asked_ > completed_) {
        constexpr unsigned most_silent = 3;
        if (++silent_ == most_silent && engine_.device().retries_for_long()) fail(errc::peer_lost);
        return;
    }
    if (room(0) && may_send_) {
        entry& e = next_entry();
        const bool reads = engine_.device().iwarp();
        e.piece = {};
        e.request.opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        e.request.wr.rdma = {};
        chain(e, 0, nullptr, nullptr, true);
        if (reads) e.request.num_sge = 1;  // siw refuses a read without one
        flush();
    }
    asked_ = posted_;  // without room, a signalled work request is under way
    silent_ = 0;
}

// ---- receiving

RDMACORO_DECL void session::take_control(frame_kind kind) noexcept {
    if (kind == frame_kind::flush) {
        // One at a time, and the one of a side that closes meanwhile.
        if (++want_flushed_ > 2) fail(errc::protocol_violation);
    } else if (kind == frame_kind::flushed) {
        flushed();
    }
}

/// While the connection drains, the two ends still report to each other which frames have arrived.
RDMACORO_DECL void session::arrived_too_late(slot& s, std::uint32_t bytes) noexcept {
    frame f;
    if (phase_ == phase::draining && f.load(s.data, bytes) && window_.admit(f.credits)) {
        if (f.kind == frame_kind::flushed && flushes_answered_ < flushes_sent_) ++flushes_answered_;
        if (f.kind == frame_kind::flush && can_send_control())
            static_cast<void>(send_control(frame_kind::flushed));
    }
    recycle(s);
}

RDMACORO_DECL lent_buffer session::keep() noexcept {
    lent_buffer lent = inbox_.keep(*receives_);
    if (lent) freed_credit();
    return lent;
}

// ---- sending

RDMACORO_DECL post_result session::no_room() noexcept {
    want_writable_ = true;
    if (!timer_.queued()) timer_.set(patience_with_silence);
    return post_result::retry;
}

/// The device did not take the work requests from this one on: they are over.
RDMACORO_DECL void session::release_unposted(std::uint64_t from) noexcept {
    reads_unposted(from);
    while (posted_ > from) {
        holding& held = ring_[--posted_ & (ring_.size() - 1)];
        if (held.staged != nullptr) {
            --staged_;
            engine_.slots().give(*held.staged);
        }
        const holding ended = std::exchange(held, holding{});
        if (ended.moves != nullptr) piece_over(ended, IBV_WC_WR_FLUSH_ERR);
    }
}

/// The device did not take the chain that begins with the request `first`, or not all of it. There is room by our count, so the queue
/// pair is broken. siw fails without naming a request, after it has put all of them into the send queue: some may be flushed later,
/// so they are over only with their completions or with the queue pair.
RDMACORO_DECL void session::post_failed(std::uint64_t first, const ibv_send_wr* refused) noexcept {
    if (refused != nullptr) {
        const auto low = static_cast<std::uint32_t>(refused->wr_id);
        release_unposted(first + static_cast<std::uint32_t>(low - static_cast<std::uint32_t>(first)));
    }
    fail(errc::peer_lost);
}

/// The refused transfer ends with the refusal, all others with the loss of the peer: a peer that dies loses its memory first. A request
/// that is flushed shows that the queue pair has broken by itself; the completion that says why may come after it, in the same poll.
RDMACORO_COLD void session::request_failed(ibv_wc_status outcome) noexcept {
    if (outcome == IBV_WC_WR_FLUSH_ERR) {
        if (phase_ != phase::ready || failure_ || in_error_) return;
        to_error_state();  // nothing more is posted to it
        return timer_.set(duration::zero());
    }
    if (outcome == IBV_WC_REM_INV_REQ_ERR) ++counts_.called_invalid;
    fail(outcome == IBV_WC_REM_ACCESS_ERR ? errc::peer_lost : errc_of(outcome));
}

/// Precondition: `can_send_control()`. False: where nothing travels inside work requests, no slot is free now. Then the credits are
/// owed as before, and the link has its turn again.
RDMACORO_DECL bool session::send_control(frame_kind kind, bool signal) noexcept {
    slot* staged = nullptr;
    unsigned flags = IBV_SEND_INLINE;
    if (engine_.device().inline_limit() < frame_word_bytes) {
        staged = engine_.slots().take();
        if (staged == nullptr) {
            mark_work();
            return false;
        }
        flags = 0;
    }
    entry& e = next_entry();
    std::byte* const to = staged != nullptr ? staged->data : e.bytes;
    frame{kind, take_owed_credits()}.store(to);
    e.piece = {reinterpret_cast<std::uintptr_t>(to), frame_word_bytes, staged != nullptr ? staged->lkey : 0};
    e.request.opcode = IBV_WR_SEND;
    window_.spend();
    ++counts_.control_frames;
    enqueue(e, flags, staged, signal);
    return true;
}

// ---- ending

RDMACORO_DECL void session::to_error_state() noexcept {
    if (queue_pair_ == nullptr || std::exchange(in_error_, true)) return;
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_ERR;
    static_cast<void>(::ibv_modify_qp(queue_pair_.get(), &wanted, IBV_QP_STATE));
    // A receive that is posted to it now would be flushed, and posted again, without end.
    if (bank_->shared == nullptr) receives_->close_own();
}

RDMACORO_DECL void session::fail(errc why) noexcept {
    if (failure_ || phase_ == phase::leaving) return;
    failure_.set(why, all_taken_at() - 1);
    to_error_state();
    mark_work();
}

RDMACORO_DECL void session::peer_gone() noexcept {
    if (phase_ == phase::opening) return fail_opening(errc::peer_lost, 0, "open");
    fail(errc::peer_lost);
}

/// Returns when the device no longer touches memory of users: it has flushed the requests, or the queue pair is destroyed. A shared
/// receive queue may lose slots by that, so the device has its time: once for all links that come here before the next poll.
RDMACORO_DECL void session::quiesce() noexcept {
    to_error_state();
    flush();
    const bool waits = bank_->shared != nullptr && engine_.may_wait_for_flushes();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(waits ? 250 : 0);
    while (transfer_requests_ != 0 && std::chrono::steady_clock::now() < limit) engine_.progress();
    if (transfer_requests_ == 0) return;
    engine_.empty(*bank_);
    engine_.flushed_in_vain();
    if (transfer_requests_ == 0) return;
    if (bank_->shared != nullptr) ++counts_.late_closes;
    destroy_queue_pair();
}

RDMACORO_DECL void session::close(std::error_code reason) noexcept {
    if (phase_ != phase::ready) return;
    const bool gracefully = !failure_ && transfer_requests_ == 0;
    closing_ = reason;
    if (transfer_requests_ != 0) quiesce();
    phase_ = phase::draining;
    session_listener* const listener = inbox_.detach();
    complete_all(reason);
    let_go(gracefully);
    if (listener != nullptr) listener->link_down(reason);
}

RDMACORO_DECL void session::abandon() noexcept {
    if (phase_ == phase::opening) {
        opener_ = nullptr;
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
}

/// Releases the connection; the object remains until it can be destroyed. Gracefully: the last frames still go out.
RDMACORO_DECL void session::let_go(bool gracefully) noexcept {
    awaited_.end();
    no_longer_pending();
    drop_inbound();
    static_cast<list_node<work_tag>&>(*this).unlink();
    want_hello_ = want_flush_ = want_writable_ = false;
    want_flushed_ = 0;
    engine_.leaves(*this);
    if (gracefully && completed_ != posted_ && can_send_control()) {
        phase_ = phase::draining;
        // Over iWARP a completion does not show arrival; the peer's answer to a flush does.
        const bool asks = engine_.device().iwarp();
        if (send_control(asks ? frame_kind::flush : frame_kind::credit, true) && asks) ++flushes_sent_;
        flush();
        drained_at_ = posted_;
        timer_.set(std::chrono::seconds(1));
        // Draining most often takes microseconds; then the peer is notified at once, even if this scheduler never polls
        // again. Of many links that close before the next poll, those after the first that is not drained in time are left to it.
        if (!drained() && engine_.may_wait_for_draining()) {
            const auto limit = std::chrono::steady_clock::now() + std::chrono::microseconds(500);
            do {
                engine_.progress();
            } while (!drained() && std::chrono::steady_clock::now() < limit);
            if (!drained()) engine_.waited_in_vain();
        }
        // Operations of users end with the link, and the peer must not reach their memory after that.
        if (drained() || exposed_ != 0) start_leaving();
    } else {
        start_leaving();
    }
}

RDMACORO_DECL bool session::drained() const noexcept {
    return failure_ || late_ ||
           (completed_ >= drained_at_ && (!engine_.device().iwarp() || flushes_answered_ == flushes_sent_));
}

RDMACORO_DECL void session::start_leaving() noexcept {
    phase_ = phase::leaving;
    late_ = false;
    to_error_state();
    flush();
    post_last_request();
    if (id_ != nullptr && connected_) static_cast<void>(::rdma_disconnect(id_));
    socket_.close();
    timer_.set(std::chrono::seconds(1));
}

/// Unsignalled work requests end without a completion. The completion of one more request, with any outcome, comes after them.
/// Not over iWARP: siw completes no request that was posted after the error.
RDMACORO_DECL void session::post_last_request() noexcept {
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

RDMACORO_DECL void session::destroy_queue_pair() noexcept {
    if (queue_pair_ == nullptr) return;
    engine_.remove_queue_pair(*this);
    queue_pair_.reset();
    chained_ = 0;
    reads_unposted(0);
    for (; completed_ < posted_; ++completed_) {
        holding& held = ring_[completed_ & (ring_.size() - 1)];
        if (held.staged != nullptr) engine_.slots().give(*held.staged);
        const holding ended = std::exchange(held, holding{});
        if (ended.moves != nullptr) piece_over(ended, IBV_WC_WR_FLUSH_ERR);
    }
    staged_ = 0;
    // The owner may keep this object for long.
    chain_.reset();
    chain_bytes_.reset();
    ring_ = {};
}

RDMACORO_DECL void session::release_resources() noexcept {
    if (!std::exchange(holds_resources_, false)) return;
    engine_.release_resources(*bank_, *receives_, bank_->shared != nullptr && !receives_over());
}

RDMACORO_DECL bool session::sends_over() const noexcept {
    return completed_ == posted_ || engine_.device().iwarp();
}

/// The device has completed, or will never take, all receives of the queue pair. It reports the end of those that it took from a
/// shared queue; those of the queue pair's own are flushed one by one.
RDMACORO_DECL bool session::receives_over() const noexcept {
    if (!could_receive_ || !engine_.device().tells_last_receive()) return true;
    return bank_->shared != nullptr ? last_receive_over_ : !receives_->any_posted();
}

RDMACORO_DECL bool session::leave_step(bool in_a_hurry) noexcept {
    if (phase_ == phase::draining) {
        if (!drained() && !in_a_hurry) return false;
        start_leaving();
    }
    if (phase_ != phase::leaving) return false;
    // Both wait in the kernel for the peer's answer to a request: for ten seconds where there is none, and for ever where the peer
    // is on this thread.
    if (cm_owes_event_ && !in_a_hurry && !engine_.broken()) return false;
    if (queue_pair_ != nullptr) {
        // Adapters remove the completions of a queue pair that is destroyed, and the slots of its receives would be lost with them:
        // all must have been polled that came before the device was done.
        const bool over = sends_over() && receives_over();
        const bool done = late_ || over;
        if (done && settled_ == 0) settled_ = all_taken_at();
        if (!in_a_hurry && !engine_.broken() && (!done || taken() < settled_)) return false;
        if (late_ && !over) ++counts_.late_closes;
        destroy_queue_pair();
    }
    release_resources();  // not before: messages that wait for the user hold slots
    if (id_ != nullptr && (in_a_hurry || late_ || cm_over_ || !connected_)) {
        ::rdma_destroy_id(std::exchange(id_, nullptr));
    }
    if (id_ != nullptr) return false;
    const bool over = !owned_ && exposed_ == 0;
    // Its owner, or the end of a region, puts it back: until then it is no work.
    if (!over) static_cast<list_node<leaving_tag>&>(*this).unlink();
    return over;
}

}  // namespace rdmacoro::detail::verbs
