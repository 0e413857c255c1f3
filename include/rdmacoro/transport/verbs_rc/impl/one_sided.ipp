// Gets, puts and atomics of a verbs connection.
//
// Over InfiniBand and RoCE the completion of a put shows that its data has arrived. Over iWARP it only shows that this side
// may use its memory again. There a flush frame follows the put; a message arrives after the data of earlier puts, so the
// peer's answer shows that the data has arrived. One flush at a time is under way, for all puts before it.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace rdmacoro::detail::verbs {

/// Nullptr: the link is down, or there is no memory.
RDMACORO_DECL transfer* session::take_transfer(transfer::kind what, const remote_region& there,
                                               completion& c) noexcept {
    if (phase_ != phase::ready || failure_) return nullptr;
    transfer* t = transfers_.take();
    if (t == nullptr) return nullptr;
    t->done = &c;
    t->what = what;
    t->address = there.address;
    t->rkey = static_cast<std::uint32_t>(there.key);
    t->begun = t->partial = false;
    t->posted = 0;
    t->pieces_out = 0;
    t->flush = 0;
    t->code = {};
    c.transport_state = t;
    return t;
}

RDMACORO_DECL post_result session::no_transfer() noexcept {
    return phase_ != phase::ready || failure_ ? post_result::failed : no_room();
}

RDMACORO_DECL void session::give_back(transfer& t) noexcept {
    t.lease.reset();
    if (t.cell != nullptr) engine_.slots().give(*std::exchange(t.cell, nullptr));
    transfers_.recycle(t);
}

RDMACORO_DECL post_result session::end_at_once(transfer& t, errc code) noexcept {
    t.code = code;
    transfers_.finish(t);
    mark_work();
    return post_result::posted;
}

/// Posts `t`. The device reads or writes `memory` at this end, if it needs to be registered.
RDMACORO_DECL post_result session::begin(transfer& t, std::span<std::byte> memory,
                                         access_rights rights) noexcept {
    if (!memory.empty()) {
        t.lease = engine_.cache().acquire(memory, rights);
        if (!t.lease || (t.what == transfer::kind::get && !t.lease.registration().writable))
            return end_at_once(t, errc::no_resources);
        t.lkey = t.lease.registration().registration->lkey;
    }
    transfers_.moves(t);
    transfers_.begin_partial(t);
    if (transfers_.partial() == 1) post_pieces(t);  // others are posted in their turn
    return post_result::posted;
}

RDMACORO_DECL post_result session::get(const remote_region& there, std::span<std::byte> into,
                                       completion& c) noexcept {
    transfer* t = take_transfer(transfer::kind::get, there, c);
    if (t == nullptr) return no_transfer();
    t->local = into.data();
    t->length = into.size();
    ++counts_.gets;
    // The data of an iWARP get arrives as a write from the other side.
    return begin(*t, into, engine_.device().iwarp() ? access_rights::remote_write : access_rights::none);
}

RDMACORO_DECL post_result session::put(std::span<const std::byte> from, const remote_region& there,
                                       completion& c) noexcept {
    transfer* t = take_transfer(transfer::kind::put, there, c);
    if (t == nullptr) return no_transfer();
    t->local = const_cast<std::byte*>(from.data());
    t->length = from.size();
    ++counts_.puts;
    const bool travels_inside = from.size() <= engine_.device().inline_limit();
    return begin(*t, travels_inside ? std::span<std::byte>() : std::span(t->local, from.size()),
                 access_rights::none);
}

RDMACORO_DECL post_result session::atomic(transfer::kind what, const remote_region& there,
                                          std::uint64_t first, std::uint64_t second, std::uint64_t& result,
                                          completion& c) noexcept {
    transfer* t = take_transfer(what, there, c);
    if (t == nullptr) return no_transfer();
    t->operands[0] = first;
    t->operands[1] = second;
    t->result = &result;
    t->length = sizeof result;
    ++counts_.atomics;
    if (!capabilities_.atomics) return end_at_once(*t, errc::unsupported);
    if (there.length != sizeof result || there.address % alignof(std::uint64_t) != 0)
        return end_at_once(*t, errc::invalid_argument);
    t->cell = engine_.slots().take_cell();
    if (t->cell == nullptr) return end_at_once(*t, errc::no_resources);
    t->local = reinterpret_cast<std::byte*>(t->cell->value);
    t->lkey = t->cell->lkey;
    return begin(*t, {}, access_rights::none);
}

/// Posts as many work requests of `t` as there is room for; all but the last have the greatest length. Where the queue pair turns
/// out to be broken the transfer may be over at return.
RDMACORO_DECL void session::post_pieces(transfer& t) noexcept {
    while (!failure_ && !in_error_ && (!t.begun || t.posted < t.length) && room_for_piece() && may_send_) {
        entry& e = next_entry();
        const std::uint64_t left = t.length - t.posted;
        const auto bytes =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(left, engine_.device().most_at_once()));
        ibv_send_wr& request = e.request;
        unsigned flags = 0;
        e.piece = {reinterpret_cast<std::uintptr_t>(t.local + t.posted), bytes, t.lkey};
        switch (t.what) {
            case transfer::kind::get: request.opcode = IBV_WR_RDMA_READ; break;
            case transfer::kind::put:
                request.opcode = IBV_WR_RDMA_WRITE;
                if (t.length > engine_.device().inline_limit()) break;
                // Copied into the chain, where it may wait.
                if (bytes != 0) std::memcpy(e.bytes, t.local, bytes);
                e.piece = {reinterpret_cast<std::uintptr_t>(e.bytes), bytes, 0};
                flags = IBV_SEND_INLINE;
                break;
            case transfer::kind::fetch_add:
            case transfer::kind::compare_swap:
                request.opcode = t.what == transfer::kind::fetch_add ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                                                     : IBV_WR_ATOMIC_CMP_AND_SWP;
                request.wr.atomic.remote_addr = t.address;
                request.wr.atomic.compare_add = t.operands[0];
                request.wr.atomic.swap = t.operands[1];
                request.wr.atomic.rkey = t.rkey;
                break;
        }
        if (t.what == transfer::kind::get || t.what == transfer::kind::put) {
            request.wr.rdma.remote_addr = t.address + t.posted;
            request.wr.rdma.rkey = t.rkey;
        }
        t.begun = true;
        t.posted += bytes;
        ++t.pieces_out;
        ++transfer_requests_;
        transfer_bytes_ += bytes;
        const bool last = t.posted == t.length;
        if (last) {
            transfers_.end_partial(t);
            if (t.what == transfer::kind::put && engine_.device().iwarp()) {
                t.flush = flushes_sent_ + 1;
                want_flush_ = true;
            }
        }
        chain(e, flags, nullptr, &t, true);
        if (request.opcode == IBV_WR_RDMA_READ && engine_.device().iwarp()) {
            if (bytes == 0) {  // siw would read into what the place in its queue had before
                e.piece = {};
                request.num_sge = 1;
            }
            awaits_own_completion();
        }
        if (last) break;
    }
    flush();  // its requests together, and at once
    if (want_flush_) {
        send_owed_control();
        if (want_flush_) mark_work();
    }
}

/// Few bytes are under way at a time: a transfer that is revoked can be waited for. They are more than a path holds.
RDMACORO_DECL bool session::room_for_piece() const noexcept {
    constexpr std::uint64_t pieces = 8;
    return room_for_transfer() && transfer_bytes_ < pieces * engine_.device().most_at_once();
}

/// Goes on with transfers that found no room for all of their work requests.
RDMACORO_DECL void session::pump() noexcept {
    if (phase_ != phase::ready) return;
    for (transfer* t = transfers_.moving().front();
         t != nullptr && !failure_ && !in_error_ && transfers_.partial() != 0 && room_for_piece();) {
        transfer* const after = transfers_.moving().next(*t);
        if (t->partial) post_pieces(*t);
        t = after;
    }
}

/// The read that was chained last. siw completes a later message, or a write, before it: the completion of that one counts for all
/// work requests but reads.
RDMACORO_DECL void session::awaits_own_completion() noexcept {
    const std::uint64_t sequence = posted_ - 1;
    reads_.push_back({sequence, std::exchange(ring_[sequence & (ring_.size() - 1)], holding{})});
}

RDMACORO_DECL void session::read_over(std::uint32_t sequence, ibv_wc_status outcome) noexcept {
    const auto found = std::find_if(reads_.begin(), reads_.end(), [&](const pending_read& one) {
        return static_cast<std::uint32_t>(one.sequence) == sequence;
    });
    if (found == reads_.end()) return;
    const holding ended = found->held;
    reads_.erase(found);
    if (failure_ && outcome == IBV_WC_SUCCESS) outcome = IBV_WC_WR_FLUSH_ERR;  // as in `sent`
    piece_over(ended, outcome);
    if (transfers_.partial() != 0) pump();
}

/// The reads from this work request on are over without having begun.
RDMACORO_DECL void session::reads_unposted(std::uint64_t from) noexcept {
    while (!reads_.empty() && reads_.back().sequence >= from) {
        const holding ended = reads_.back().held;
        reads_.pop_back();
        piece_over(ended, IBV_WC_WR_FLUSH_ERR);
    }
}

RDMACORO_DECL void session::piece_over(const holding& piece, ibv_wc_status outcome) noexcept {
    transfer& t = *piece.moves;
    --t.pieces_out;
    --transfer_requests_;
    transfer_bytes_ -= piece.bytes;
    if (outcome != IBV_WC_SUCCESS && !t.code) {
        // When this side closes, siw does not report all work requests as flushed.
        if (closing_) {
            t.code = closing_;
        } else if (outcome != IBV_WC_WR_FLUSH_ERR) {
            t.code = errc_of(outcome);
        } else {
            t.code = failure_ ? failure_.code() : status(errc::peer_lost);
        }
    }
    if (finish_if_over(t)) mark_work();
}

RDMACORO_DECL bool session::finish_if_over(transfer& t) noexcept {
    const bool all_posted = t.begun && t.posted == t.length;
    if (t.pieces_out != 0 || (!all_posted && !t.code)) return false;
    if (!t.code && t.flush > flushes_answered_) return false;
    if (!t.code && t.result != nullptr && t.cell != nullptr) *t.result = *t.cell->value;
    t.result = nullptr;
    transfers_.finish(t);
    return true;
}

/// The peer answers a flush: the data of the puts before it has arrived.
RDMACORO_DECL void session::flushed() noexcept {
    if (flushes_answered_ == flushes_sent_) return fail(errc::protocol_violation);
    ++flushes_answered_;
    // They are posted in the order of the list: those behind the first that has not begun, or waits for a later flush, wait, too.
    for (transfer* t = transfers_.moving().front();
         t != nullptr && t->begun && t->flush <= flushes_answered_;) {
        transfer* after = transfers_.moving().next(*t);
        if (t->flush != 0 && t->flush <= flushes_answered_ && finish_if_over(*t)) mark_work();
        t = after;
    }
    if (want_flush_) mark_work();
}

/// Ends all transfers. Precondition: the device touches their memory no more.
RDMACORO_DECL void session::complete_all(std::error_code reason) noexcept {
    while (transfer* t = transfers_.moving().front())
        transfers_.abort(*t, reason, static_cast<bool>(failure_));
    transfers_.complete_finished(*this);
}

/// The memory belongs to its owner again at return. No further piece is posted, and those under way are waited for, as long as the
/// device completes some; where it does not, or is gone, the link ends.
RDMACORO_DECL void session::revoke(completion& c) noexcept {
    auto* t = static_cast<transfer*>(c.transport_state);
    transfers_.end_partial(*t);
    const auto now = [] { return std::chrono::steady_clock::now(); };
    constexpr auto patience = std::chrono::milliseconds(100);
    auto limit = now() + patience;
    for (bool late = engine_.broken(); t->pieces_out != 0 && !late;) {
        late = now() >= limit;  // before the look: this process may have stood still
        const std::uint64_t before = completed_;
        engine_.progress();
        if (completed_ == before) continue;
        limit = now() + patience;
        late = false;
    }
    if (t->pieces_out != 0) {
        fail(errc::peer_lost);
        quiesce();
    }
    give_back(*t);
}

RDMACORO_DECL region session::expose(std::span<std::byte> memory, access_rights rights) noexcept {
    auto lease = engine_.cache().acquire(memory, rights);
    if (!lease) return {};
    const auto opened = engine_.regions().add(std::move(lease), rights);
    if (!opened) return {};
    ++exposed_;
    return region(static_cast<region_owner&>(*this), memory, *opened);
}
RDMACORO_COLD void session::deregister(std::uint64_t key) noexcept {
    --exposed_;
    engine_.deregister(key);
    if (phase_ == phase::leaving) engine_.leaves(*this);
}

}  // namespace rdmacoro::detail::verbs
