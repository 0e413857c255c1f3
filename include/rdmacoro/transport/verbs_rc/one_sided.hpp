// Gets, puts and atomics of a verbs connection. Included by engine.hpp alone.
//
// Over InfiniBand and RoCE the completion of a put says that its data has arrived. Over iWARP it only says that this side
// may use its memory again. There a flush frame follows the put; messages arrive behind what was put before them, so the
// peer's answer says that the data has arrived. One flush at a time is under way, for all puts before it.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

namespace rdmacoro::detail::verbs {

inline transfer* core::take_transfer() noexcept {
    if (transfer* recycled = free_transfers_.pop_front()) return recycled;
    try {
        transfers_.push_back(std::make_unique<transfer>());
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    return transfers_.back().get();
}

inline void core::give_back(transfer& t) noexcept {
    t.lease.reset();
    if (t.cell != nullptr) engine_.slots().give(*std::exchange(t.cell, nullptr));
    t.unlink();
    free_transfers_.push_back(t);
}

/// Puts `t` under way. `memory` is what the device reads or writes here, if it needs to be registered.
inline post_result core::begin(transfer& t, std::span<std::byte> memory, access_rights rights) noexcept {
    t.done->transport_state = &t;
    t.begun = t.partial = false;
    t.posted = 0;
    t.pieces_out = 0;
    t.flush = 0;
    t.code = {};
    if (!memory.empty()) {
        t.lease = engine_.cache().acquire(memory, rights);
        if (!t.lease || (t.what == transfer::kind::get && !t.lease.registration().writable)) {
            t.code = errc::no_resources;
            finished_.push_back(t);
            mark_work();
            return post_result::posted;
        }
        t.lkey = t.lease.registration().registration->lkey;
    }
    moving_.push_back(t);
    t.partial = true;
    ++partial_;
    if (t.what == transfer::kind::put) ++partial_puts_;
    if (partial_ == 1) post_pieces(t);  // else its turn comes
    return post_result::posted;
}

inline post_result core::get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
    if (phase_ != phase::ready || failure_) return post_result::failed;
    transfer* t = take_transfer();
    if (t == nullptr) return no_room();
    t->done = &c;
    t->what = transfer::kind::get;
    t->address = there.address;
    t->rkey = static_cast<std::uint32_t>(there.key);
    t->local = into.data();
    t->length = into.size();
    ++counts_.gets;
    // What an iWARP device reads comes as a write from the other side.
    return begin(*t, into, engine_.device().iwarp() ? access_rights::remote_write : access_rights::none);
}

inline post_result core::put(std::span<const std::byte> from, const remote_region& there,
                             completion& c) noexcept {
    if (phase_ != phase::ready || failure_) return post_result::failed;
    transfer* t = take_transfer();
    if (t == nullptr) return no_room();
    t->done = &c;
    t->what = transfer::kind::put;
    t->address = there.address;
    t->rkey = static_cast<std::uint32_t>(there.key);
    t->local = const_cast<std::byte*>(from.data());
    t->length = from.size();
    ++counts_.puts;
    const bool travels_inside = from.size() <= engine_.device().inline_limit();
    return begin(*t, travels_inside ? std::span<std::byte>() : std::span(t->local, from.size()),
                 access_rights::none);
}

inline post_result core::atomic(transfer::kind what, const remote_region& there, std::uint64_t first,
                                std::uint64_t second, std::uint64_t& result, completion& c) noexcept {
    if (phase_ != phase::ready || failure_) return post_result::failed;
    transfer* t = take_transfer();
    if (t == nullptr) return no_room();
    t->done = &c;
    t->what = what;
    t->address = there.address;
    t->rkey = static_cast<std::uint32_t>(there.key);
    t->length = sizeof result;
    t->operands[0] = first;
    t->operands[1] = second;
    t->result = &result;
    ++counts_.atomics;
    const bool good = there.length == sizeof result && there.address % alignof(std::uint64_t) == 0;
    t->cell = good && capabilities_.atomics ? engine_.slots().take_cell() : nullptr;
    if (t->cell == nullptr) {
        c.transport_state = t;
        t->code = !capabilities_.atomics ? errc::unsupported
                  : !good                ? errc::invalid_argument
                                         : errc::no_resources;
        finished_.push_back(*t);
        mark_work();
        return post_result::posted;
    }
    t->local = reinterpret_cast<std::byte*>(t->cell->value);
    t->lkey = t->cell->lkey;
    return begin(*t, {}, access_rights::none);
}

/// As many of its work requests as there is room for; each but the last is of the greatest length there is. When the queue pair
/// turns out to be broken the transfer may be over at return.
inline void core::post_pieces(transfer& t) noexcept {
    while (!failure_ && !in_error_ && (!t.begun || t.posted < t.length) && room_for_transfer() && may_send_) {
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
                // It may wait in the chain, where it is copied to.
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
        const bool last = t.posted == t.length;
        if (last) {
            posted_whole(t);
            if (t.what == transfer::kind::put && engine_.device().iwarp()) {
                t.flush = flushes_sent_ + 1;
                want_flush_ = true;
            }
        }
        chain(e, flags, nullptr, &t, true);
        if (last) break;
    }
    flush();  // its requests together, and at once
    if (want_flush_) {
        say_control();
        if (want_flush_) mark_work();
    }
}

/// Goes on with transfers that found no room for all of their work requests.
inline void core::pump() noexcept {
    if (phase_ != phase::ready) return;
    for (transfer* t = moving_.front();
         t != nullptr && !failure_ && !in_error_ && partial_ != 0 && room_for_transfer();) {
        transfer* const after = moving_.next(*t);
        if (t->partial) post_pieces(*t);
        t = after;
    }
}

inline void core::posted_whole(transfer& t) noexcept {
    if (!std::exchange(t.partial, false)) return;
    --partial_;
    if (t.what == transfer::kind::put) --partial_puts_;
}

inline void core::piece_over(transfer& t, ibv_wc_status outcome) noexcept {
    --t.pieces_out;
    --transfer_requests_;
    if (outcome != IBV_WC_SUCCESS && !t.code) {
        // When this side closes, siw does not call all that it ends flushed.
        if (closing_) {
            t.code = closing_;
        } else if (outcome != IBV_WC_WR_FLUSH_ERR) {
            t.code = errc_of(outcome);
        } else {
            t.code = failure_ ? failure_ : status(errc::peer_lost);
        }
    }
    if (finish_if_over(t)) mark_work();
}

inline bool core::finish_if_over(transfer& t) noexcept {
    const bool all_posted = t.begun && t.posted == t.length;
    if (t.pieces_out != 0 || (!all_posted && !t.code)) return false;
    if (!t.code && t.flush > flushes_answered_) return false;
    posted_whole(t);
    if (!t.code && t.result != nullptr && t.cell != nullptr) *t.result = *t.cell->value;
    t.result = nullptr;
    t.unlink();
    finished_.push_back(t);
    return true;
}

/// The peer says that what was put has arrived.
inline void core::flushed() noexcept {
    if (flushes_answered_ == flushes_sent_) return fail(errc::protocol_violation);
    ++flushes_answered_;
    for (transfer* t = moving_.front(); t != nullptr;) {
        transfer* after = moving_.next(*t);
        if (t->flush != 0 && t->flush <= flushes_answered_ && finish_if_over(*t)) mark_work();
        t = after;
    }
    if (want_flush_) mark_work();
}

/// Everything that is under way ends. Precondition: the device touches nothing any more.
inline void core::complete_all(std::error_code reason) noexcept {
    intrusive_list<transfer> ending;
    ending.splice_back(finished_);
    for (transfer* t = moving_.front(); t != nullptr; t = moving_.next(*t)) {
        if (!t->code || failure_) t->code = reason;
        t->partial = false;
    }
    ending.splice_back(moving_);
    partial_ = partial_puts_ = 0;
    while (transfer* t = ending.front()) {
        completion* c = t->done;
        const std::error_code code = t->code;
        give_back(*t);
        c->done(*c, code);
    }
}

/// The memory is its owner's again at once. Where the device does not end soon the link must.
inline void core::revoke(completion& c) noexcept {
    auto* t = static_cast<transfer*>(c.transport_state);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (t->pieces_out != 0 && std::chrono::steady_clock::now() < limit) engine_.progress();
    if (t->pieces_out != 0) {
        fail(errc::canceled);
        quiesce();
    }
    posted_whole(*t);
    give_back(*t);
}

}  // namespace rdmacoro::detail::verbs
