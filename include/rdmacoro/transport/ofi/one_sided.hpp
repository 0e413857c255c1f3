// Gets, puts and atomics of a libfabric connection. Included by engine.hpp alone.
//
// Two ways. *Direct*: this side reads and writes the peer's memory by the provider, with the key that the region carries; of a
// refusal the provider says little, and the link ends. *Served*: the peer is asked, checks the request against its table of
// regions, writes or reads this side's memory by the provider, and answers; a refusal is an answer like others.
//
// A put is over when its data is in place: the provider says so by FI_DELIVERY_COMPLETE.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

namespace rdmacoro::detail::fabric {

inline transfer* core::take_transfer() noexcept {
    if (transfer* recycled = free_transfers_.pop_front()) return recycled;
    try {
        transfers_.push_back(std::make_unique<transfer>());
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    transfers_.back()->owner = this;
    return transfers_.back().get();
}

inline void core::give_back(transfer& t) noexcept {
    t.lease.reset();
    t.exact.reset();
    t.descriptor = nullptr;
    if (t.bounce != nullptr) engine_.slots().give(*std::exchange(t.bounce, nullptr));
    t.unlink();
    t.at = transfer::stage::idle;
    free_transfers_.push_back(t);
}

inline void core::posted_whole(transfer& t) noexcept {
    if (!std::exchange(t.partial, false)) return;
    --partial_;
    if (t.moves == transfer::way::put) --partial_puts_;
}

/// It is over before the provider knew of it.
inline void core::end_early(transfer& t, errc code) noexcept {
    t.code = code;
    finish(t);
}

/// What `t` came to is told: to who waits for it, or to the peer.
inline void core::finish(transfer& t) noexcept {
    posted_whole(t);
    t.unlink();
    if (t.moves == transfer::way::give || t.moves == transfer::way::take) {
        t.lease.reset();
        t.at = transfer::stage::answering;
        answers_.push_back(t);
    } else {
        t.at = transfer::stage::finished;
        finished_.push_back(t);
    }
    mark_work();
}

/// Registers this side's memory for the provider's own reading or writing, where it wants that.
inline bool core::lease_local(transfer& t) noexcept {
    if (!engine_.memory().needs_local() || t.length == 0) return true;
    t.lease = engine_.cache().acquire({t.local, t.length}, access_rights::none);
    const bool written = t.moves == transfer::way::get || t.moves == transfer::way::take;
    if (!t.lease || (written && !t.lease.registration().writable)) return false;
    t.descriptor = ::fi_mr_desc(t.lease.registration().registration.get());
    return true;
}

inline post_result core::begin(transfer& t, completion& c) noexcept {
    t.done = &c;
    c.transport_state = &t;
    t.out = t.partial = false;
    t.moved = t.piece = t.skip = 0;
    t.code = {};
    t.served = engine_.serves() && (t.moves == transfer::way::get || t.moves == transfer::way::put);
    if (t.served) {
        t.at = transfer::stage::asking;
        asking_.push_back(t);
        if (asking_.front() == &t) ask_peer();
        if (!asking_.empty()) mark_work();
        return post_result::posted;
    }
    t.at = transfer::stage::moving;
    moving_.push_back(t);
    if (t.length == 0) {
        end_early(t, errc::ok);
    } else if (t.length - 1 > ~t.address) {
        // No region reaches around the end of the address space; not all providers survive to be asked.
        end_early(t, errc::out_of_bounds);
        fail(errc::out_of_bounds);
    } else if (!lease_local(t)) {
        end_early(t, errc::no_resources);
    } else {
        t.partial = true;
        ++partial_;
        if (t.moves == transfer::way::put) ++partial_puts_;
        post_piece(t);
    }
    return post_result::posted;
}

inline post_result core::get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
    if (phase_ != phase::ready || failure_) return post_result::failed;
    transfer* t = take_transfer();
    if (t == nullptr) return no_room();
    t->moves = transfer::way::get;
    t->address = there.address;
    t->key = there.key;
    t->local = into.data();
    t->length = into.size();
    ++counts_.gets;
    return begin(*t, c);
}

inline post_result core::put(std::span<const std::byte> from, const remote_region& there,
                             completion& c) noexcept {
    if (phase_ != phase::ready || failure_) return post_result::failed;
    transfer* t = take_transfer();
    if (t == nullptr) return no_room();
    t->moves = transfer::way::put;
    t->address = there.address;
    t->key = there.key;
    t->local = const_cast<std::byte*>(from.data());
    t->length = from.size();
    ++counts_.puts;
    return begin(*t, c);
}

inline post_result core::atomic(transfer::way what, const remote_region& there, std::uint64_t first,
                                std::uint64_t second, std::uint64_t& result, completion& c) noexcept {
    if (phase_ != phase::ready || failure_) return post_result::failed;
    transfer* t = take_transfer();
    if (t == nullptr) return no_room();
    t->moves = what;
    t->address = there.address;
    t->key = there.key;
    t->operands[0] = first;
    t->operands[1] = second;
    t->result = &result;
    t->length =
        there.length == sizeof result && there.address % alignof(std::uint64_t) == 0 ? sizeof result : 0;
    t->bounce = capabilities_.atomics ? engine_.slots().take() : nullptr;
    ++counts_.atomics;
    const errc wrong = !capabilities_.atomics ? errc::unsupported
                       : t->length == 0       ? errc::invalid_argument
                       : t->bounce == nullptr ? errc::no_resources
                                              : errc::ok;
    if (wrong != errc::ok) {
        t->done = &c;
        c.transport_state = t;
        t->partial = t->out = t->served = false;
        end_early(*t, wrong);
        return post_result::posted;
    }
    t->local = t->bounce->data;
    return begin(*t, c);
}

/// One piece of `t`, as long as the provider takes it; the next when that is over.
inline void core::post_piece(transfer& t) noexcept {
    fid_ep* const endpoint = engine_.device().endpoint();
    const std::uint64_t left = t.length - t.moved;
    t.piece = std::min(left, engine_.device().longest());
    long answer = 0;
    switch (t.moves) {
        case transfer::way::get:
        case transfer::way::take: answer = post_get_piece(t); break;
        case transfer::way::put:
        case transfer::way::give: {
            iovec from{t.local + t.moved, t.piece};
            fi_rma_iov to{t.address + t.moved, t.piece, t.key};
            fi_msg_rma message{};
            message.msg_iov = &from;
            message.desc = &t.descriptor;
            message.iov_count = 1;
            message.addr = to_;
            message.rma_iov = &to;
            message.rma_iov_count = 1;
            message.context = &t.scratch;
            answer = ::fi_writemsg(endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
            break;
        }
        case transfer::way::fetch_add:
        case transfer::way::compare_swap: {
            // Operand, compare and result lie in a slot, which is registered where that is needed.
            auto* const cells = reinterpret_cast<std::uint64_t*>(t.bounce->data);
            cells[0] = t.operands[0];
            cells[1] = t.operands[1];
            void* const d = t.bounce->descriptor;
            answer = t.moves == transfer::way::fetch_add
                         ? ::fi_fetch_atomic(endpoint, cells, 1, d, cells + 2, d, to_, t.address, t.key,
                                             FI_UINT64, FI_SUM, &t.scratch)
                         : ::fi_compare_atomic(endpoint, cells + 1, 1, d, cells, d, cells + 2, d, to_,
                                               t.address, t.key, FI_UINT64, FI_CSWAP, &t.scratch);
            break;
        }
    }
    if (is_busy(answer)) return stall();
    if (answer != 0) {
        // Refused before it began: a wrong argument of the peer's, or a broken endpoint.
        t.code = errc_of(static_cast<int>(-answer));
        finish(t);
        return fail(t.code ? static_cast<errc>(t.code.value) : errc::peer_lost);
    }
    ++counts_.posts;
    t.out = true;
    ++out_;
    if (t.moved + t.piece == t.length) posted_whole(t);
}

/// The provider's gets may ask for addresses and lengths that are multiples of a number. What is not goes by a slot, with what
/// lies around it; the owner of the memory has registered that, too.
inline long core::post_get_piece(transfer& t) noexcept {
    const std::uint64_t alignment = engine_.device().profile().get_alignment;
    const std::uint64_t from = t.address + t.moved;
    const auto to = reinterpret_cast<std::uintptr_t>(t.local + t.moved);
    const std::uint64_t off = from % alignment;
    fid_ep* const endpoint = engine_.device().endpoint();
    if (off == 0 && to % alignment == 0 && (t.piece >= alignment || alignment == 1)) {
        t.piece -= t.piece % alignment;
        return ::fi_read(endpoint, t.local + t.moved, t.piece, t.descriptor, to_, from, t.key, &t.scratch);
    }
    if (t.bounce == nullptr) t.bounce = engine_.slots().take();
    if (t.bounce == nullptr) return -FI_EAGAIN;
    // Where the two sides are off by the same, what lies between the ends goes without the slot.
    const std::uint64_t most =
        to % alignment == off && off != 0 ? alignment - off : engine_.slots().slot_bytes() - 2 * alignment;
    t.piece = std::min(t.piece, most);
    t.skip = off;
    ++counts_.bounced;
    const std::uint64_t whole = (off + t.piece + alignment - 1) / alignment * alignment;
    return ::fi_read(endpoint, t.bounce->data, whole, t.bounce->descriptor, to_, from - off, t.key,
                     &t.scratch);
}

inline void core::piece_over(transfer& t, int error) noexcept {
    t.out = false;
    --out_;
    if (error != 0) {
        if (!t.code) t.code = failure_ && error == FI_ECANCELED ? failure_ : status(errc_of(error));
        // The provider does not promise that others of this peer are still well.
        fail(static_cast<errc>(t.code.value));
    } else {
        if (t.moves == transfer::way::fetch_add || t.moves == transfer::way::compare_swap) {
            if (t.result != nullptr)
                std::memcpy(t.result, t.bounce->data + 2 * sizeof *t.result, sizeof *t.result);
            t.result = nullptr;
        } else if (t.bounce != nullptr && t.done != nullptr) {
            std::memcpy(t.local + t.moved, t.bounce->data + t.skip, t.piece);
        }
        if (t.bounce != nullptr) engine_.slots().give(*std::exchange(t.bounce, nullptr));
        t.moved += t.piece;
    }
    if (t.code || t.moved == t.length) return finish(t);
    if (phase_ == phase::ready && !failure_) post_piece(t);
}

// ---- served

/// Tells the peer of as many gets and puts as it may be asked for.
inline void core::ask_peer() noexcept {
    while (!asking_.empty() && asked_count_ < most_served && can_send_control() &&
           credits_ > reserved_credits - 1) {
        transfer& t = *asking_.front();
        service_request request{t.key, t.address, t.length, 0, 0, next_number_};
        if (t.length != 0) {
            const std::uint64_t access = t.moves == transfer::way::get ? std::uint64_t{FI_REMOTE_WRITE}
                                                                       : std::uint64_t{FI_REMOTE_READ};
            if (t.exact == nullptr && engine_.memory().add({t.local, t.length}, access, t.exact) != 0) {
                end_early(t, errc::no_resources);
                continue;
            }
            request.own_key = ::fi_mr_key(t.exact.get());
            request.own_address = engine_.memory().address(t.local, t.local);
        }
        const frame_kind kind = t.moves == transfer::way::get ? frame_kind::get : frame_kind::put;
        if (!send_control(kind, service_request::wire_bytes,
                          [&](std::byte* to) noexcept { request.store(to); }))
            return;
        t.number = next_number_++;
        ++asked_count_;
        asking_.pop_front();
        t.at = transfer::stage::asked;
        asked_.push_back(t);
    }
}

/// The peer asks for a get or put.
inline void core::asked(const frame& f, const std::byte* request) noexcept {
    if (failure_) return;
    const service_request wanted = service_request::load(request);
    if (!engine_.serves() || serving_ == most_served) return fail(errc::protocol_violation);
    transfer* t = take_transfer();
    if (t == nullptr) return fail(errc::no_resources);
    const bool gets = f.kind == frame_kind::get;
    ++serving_;
    ++counts_.served;
    t->moves = gets ? transfer::way::give : transfer::way::take;
    t->done = nullptr;
    t->served = t->partial = t->out = false;
    t->number = wanted.operation;
    t->address = wanted.own_address;
    t->key = wanted.own_key;
    t->region_key = wanted.key;
    t->local = reinterpret_cast<std::byte*>(wanted.address);
    t->length = wanted.length;
    t->moved = t->piece = 0;
    t->code = engine_.regions().check(wanted.key, wanted.address, wanted.length,
                                      gets ? access_rights::remote_read : access_rights::remote_write);
    t->at = transfer::stage::moving;
    moving_.push_back(*t);
    if (!t->code && !lease_local(*t)) t->code = errc::no_resources;
    if (t->code || t->length == 0) return finish(*t);
    t->partial = true;
    ++partial_;
    post_piece(*t);
}

inline void core::say_answers() noexcept {
    while (!answers_.empty() && can_send_control()) {
        transfer& t = *answers_.front();
        const one_sided_status said{t.number, static_cast<errc>(t.code.value)};
        if (!send_control(frame_kind::status, one_sided_status::wire_bytes,
                          [&](std::byte* to) noexcept { said.store(to); }))
            return;
        --serving_;
        give_back(t);
    }
}

/// The peer says how a get or put went. They are answered in any order.
inline void core::answered(const std::byte* answer) noexcept {
    const one_sided_status said = one_sided_status::load(answer);
    transfer* t = asked_.front();
    while (t != nullptr && t->number != said.operation) t = asked_.next(*t);
    if (t == nullptr || said.outcome == errc::protocol_violation) return fail(errc::protocol_violation);
    --asked_count_;
    t->exact.reset();
    t->code = said.outcome;
    finish(*t);
    if (!asking_.empty()) mark_work();
}

// ---- ending

/// Whether the provider or the peer may still touch memory of a user's.
inline bool core::moving() const noexcept { return out_ != 0 || (asked_count_ != 0 && peer_may_move()); }

inline void core::refuse(std::uint64_t region_key) noexcept {
    for (transfer* t = moving_.front(); t != nullptr;) {
        transfer* const after = moving_.next(*t);
        if (!t->out && t->done == nullptr && t->region_key == region_key) end_early(*t, errc::bad_key);
        t = after;
    }
}
inline bool core::touches(std::uint64_t region_key) noexcept {
    for (transfer* t = moving_.front(); t != nullptr; t = moving_.next(*t)) {
        if (t->out && t->done == nullptr && t->region_key == region_key) return true;
    }
    return false;
}

inline bool core::gets() noexcept {
    for (transfer* t = moving_.front(); t != nullptr; t = moving_.next(*t)) {
        if (t->out && (t->moves == transfer::way::get || t->moves == transfer::way::take)) return true;
    }
    return false;
}

/// Everything that is under way ends. Precondition: nobody touches anything any more.
inline void core::complete_all(std::error_code reason) noexcept {
    intrusive_list<transfer> ending;
    ending.splice_back(finished_);
    for (intrusive_list<transfer>* list : {&moving_, &asking_, &asked_, &answers_}) {
        while (transfer* t = list->pop_front()) {
            t->partial = false;
            if (t->done == nullptr) {
                give_back(*t);
                continue;
            }
            if (!t->code || failure_) t->code = reason;
            ending.push_back(*t);
        }
    }
    partial_ = partial_puts_ = 0;
    asked_count_ = serving_ = 0;
    while (transfer* t = ending.pop_front()) {
        completion* c = t->done;
        const std::error_code code = t->code;
        give_back(*t);
        c->done(*c, code);
    }
}

inline void core::endpoint_gone() noexcept {
    to_ = FI_ADDR_UNSPEC;
    for (transfer* t = moving_.front(); t != nullptr;) {
        transfer* after = moving_.next(*t);
        if (t->out) piece_over(*t, FI_ECANCELED);
        t = after;
    }
}

inline region core::expose(std::span<std::byte> memory, access_rights rights) noexcept {
    const bool written = allows(rights, access_rights::remote_write);
    region made = engine_.regions().add(written ? static_cast<region_owner&>(*this) : engine_,
                                        engine_.cache(), memory, rights);
    if (made && written) ++exposed_;
    return made;
}
inline void core::deregister(std::uint64_t key) noexcept {
    --exposed_;
    engine_.deregister(key);
}

/// The memory is its owner's again at once. Where the provider and the peer do not end soon the link must.
inline void core::revoke(completion& c) noexcept {
    auto* t = static_cast<transfer*>(c.transport_state);
    const auto under_way = [&]() noexcept {
        return t->out || (t->at == transfer::stage::asked && peer_may_move());
    };
    const auto limit = std::chrono::steady_clock::now() + engine::patience;
    if (t->out) static_cast<void>(::fi_cancel(&engine_.device().endpoint()->fid, &t->scratch));
    while (under_way() && std::chrono::steady_clock::now() < limit) engine_.progress();
    if (under_way()) {
        fail(errc::canceled);
        engine_.reopen_endpoint();
    }
    if (t->at == transfer::stage::asked) {
        --asked_count_;
        fail(errc::canceled);  // its answer would be one to nothing
    }
    posted_whole(*t);
    give_back(*t);
}

}  // namespace rdmacoro::detail::fabric
