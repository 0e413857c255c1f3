// Gets, puts and atomics of a libfabric connection.
//
// Two ways. *Direct*: this side reads and writes the peer's memory by the provider, with the key that the region carries; the
// provider reports little about a refusal, and the link ends. *Served*: the peer is asked, checks the request against its table
// of regions, writes or reads this side's memory by the provider, and answers; a refusal is an ordinary answer.
//
// A put is over when its data is in place, which the provider guarantees by FI_DELIVERY_COMPLETE.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

namespace rdmacoro::detail::fabric {

RDMACORO_DECL transfer* session::take_transfer() noexcept {
    transfer* t = transfers_.take([this](transfer& made, std::size_t) noexcept { made.owner = this; });
    if (t == nullptr) return nullptr;
    t->served = t->partial = t->out = t->withdrawn = false;
    t->moved = t->piece = t->skip = 0;
    t->code = {};
    return t;
}

/// Nullptr: the link is down, or there is no memory.
RDMACORO_DECL transfer* session::take_transfer(transfer::way what, const remote_region& there,
                                               completion& c) noexcept {
    transfer* t = is_up() ? take_transfer() : nullptr;
    if (t == nullptr) return nullptr;
    t->moves = what;
    t->address = there.address;
    t->key = there.key;
    t->done = &c;
    c.transport_state = t;
    return t;
}
/// The answer of a post that got no transfer.
RDMACORO_DECL post_result session::no_transfer() noexcept {
    return is_up() ? no_room() : post_result::failed;
}

RDMACORO_DECL void session::give_back(transfer& t) noexcept {
    t.lease.reset();
    t.exact.reset();
    t.descriptor = nullptr;
    if (t.bounce != nullptr) engine_.slots().give(*std::exchange(t.bounce, nullptr));
    t.at = transfer::stage::idle;
    transfers_.recycle(t);
}

/// Ends `t` before it is with the provider.
RDMACORO_DECL void session::end_early(transfer& t, errc code) noexcept {
    t.code = code;
    finish(t);
}

/// `t` is over: its completion is to be called, or the peer to be answered.
RDMACORO_DECL void session::finish(transfer& t) noexcept {
    if (t.moves == transfer::way::give || t.moves == transfer::way::take) {
        transfers_.end_partial(t);
        t.unlink();
        t.lease.reset();
        t.at = transfer::stage::answering;
        answers_.push_back(t);
    } else {
        t.at = transfer::stage::finished;
        transfers_.finish(t);
    }
    mark_work();
}

/// Registers this side's memory for the provider to read or write, where it requires that.
RDMACORO_DECL bool session::lease_local(transfer& t) noexcept {
    if (!engine_.memory().needs_local() || t.length == 0) return true;
    t.lease = engine_.cache().acquire({t.local, t.length}, access_rights::none);
    if (!t.lease || (t.reads() && !t.lease.registration().writable)) return false;
    t.descriptor = ::fi_mr_desc(t.lease.registration().registration.get());
    return true;
}

RDMACORO_DECL post_result session::begin(transfer& t) noexcept {
    t.served = engine_.serves() && !t.is_atomic();
    if (t.served) {
        t.at = transfer::stage::asking;
        asking_.push_back(t);
        if (asking_.front() == &t) ask_peer();
        if (!asking_.empty()) mark_work();
        return post_result::posted;
    }
    t.at = transfer::stage::moving;
    transfers_.moves(t);
    if (t.length == 0) {
        end_early(t, errc::ok);
    } else if (t.length - 1 > ~t.address) {
        // No region wraps around the end of the address space; not all providers survive such a request.
        end_early(t, errc::out_of_bounds);
        fail(errc::out_of_bounds);
    } else if (!lease_local(t)) {
        end_early(t, errc::no_resources);
    } else {
        transfers_.begin_partial(t);
        post_piece(t);
    }
    return post_result::posted;
}

RDMACORO_DECL post_result session::get(const remote_region& there, std::span<std::byte> into,
                                       completion& c) noexcept {
    transfer* const t = take_transfer(transfer::way::get, there, c);
    if (t == nullptr) return no_transfer();
    t->local = into.data();
    t->length = into.size();
    ++counts_.gets;
    return begin(*t);
}

RDMACORO_DECL post_result session::put(std::span<const std::byte> from, const remote_region& there,
                                       completion& c) noexcept {
    transfer* const t = take_transfer(transfer::way::put, there, c);
    if (t == nullptr) return no_transfer();
    t->local = const_cast<std::byte*>(from.data());
    t->length = from.size();
    ++counts_.puts;
    return begin(*t);
}

RDMACORO_DECL post_result session::atomic(transfer::way what, const remote_region& there, std::uint64_t first,
                                          std::uint64_t second, std::uint64_t& result,
                                          completion& c) noexcept {
    transfer* const t = take_transfer(what, there, c);
    if (t == nullptr) return no_transfer();
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
        end_early(*t, wrong);
        return post_result::posted;
    }
    t->local = t->bounce->data;
    return begin(*t);
}

/// Posts one piece of `t`, as long as the provider takes; the next one follows when it is over.
RDMACORO_DECL void session::post_piece(transfer& t) noexcept {
    t.piece = std::min(t.length - t.moved, engine_.device().longest());
    const long answer = t.reads() ? post_get_piece(t) : t.is_atomic() ? post_atomic(t) : post_put_piece(t);
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
    engine_.given();
    if (t.moved + t.piece == t.length) transfers_.end_partial(t);
}

RDMACORO_DECL long session::post_put_piece(transfer& t) noexcept {
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
    return ::fi_writemsg(engine_.device().endpoint(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

/// Operand, compare and result lie in a slot, which is registered where that is required.
RDMACORO_DECL long session::post_atomic(transfer& t) noexcept {
    fid_ep* const endpoint = engine_.device().endpoint();
    auto* const cells = reinterpret_cast<std::uint64_t*>(t.bounce->data);
    cells[0] = t.operands[0];
    cells[1] = t.operands[1];
    void* const d = t.bounce->descriptor;
    if (t.moves == transfer::way::fetch_add)
        return ::fi_fetch_atomic(endpoint, cells, 1, d, cells + 2, d, to_, t.address, t.key, FI_UINT64,
                                 FI_SUM, &t.scratch);
    return ::fi_compare_atomic(endpoint, cells + 1, 1, d, cells, d, cells + 2, d, to_, t.address, t.key,
                               FI_UINT64, FI_CSWAP, &t.scratch);
}

/// A provider may require that addresses and lengths of gets are multiples of a number. Other pieces go by a slot, together with
/// the bytes around them, which the owner of the memory has registered as well.
RDMACORO_DECL long session::post_get_piece(transfer& t) noexcept {
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
    // Where both sides are off by the same, the part between the ends goes without the slot.
    const std::uint64_t most =
        to % alignment == off && off != 0 ? alignment - off : engine_.slots().slot_bytes() - 2 * alignment;
    t.piece = std::min(t.piece, most);
    t.skip = off;
    ++counts_.bounced;
    const std::uint64_t whole = (off + t.piece + alignment - 1) / alignment * alignment;
    return ::fi_read(endpoint, t.bounce->data, whole, t.bounce->descriptor, to_, from - off, t.key,
                     &t.scratch);
}

RDMACORO_DECL void session::piece_over(transfer& t, int error) noexcept {
    t.out = false;
    --out_;
    engine_.taken_back();
    if (error != 0) {
        const bool wanted = error == FI_ECANCELED && std::error_code(t.code) == errc::canceled;
        const status why = failure_ && error == FI_ECANCELED ? failure_.code() : status(errc_of(error));
        if (!t.code) t.code = why;
        if (wanted) {
            doubt();  // it may have ended because the peer is gone
        } else {
            // The provider does not guarantee that other transfers with this peer still work.
            fail(static_cast<errc>(why.value));
        }
    } else {
        if (t.is_atomic()) {
            if (t.result != nullptr)
                std::memcpy(t.result, t.bounce->data + 2 * sizeof *t.result, sizeof *t.result);
            t.result = nullptr;
        } else if (t.bounce != nullptr) {
            std::memcpy(t.local + t.moved, t.bounce->data + t.skip, t.piece);
        }
        if (t.bounce != nullptr) engine_.slots().give(*std::exchange(t.bounce, nullptr));
        t.moved += t.piece;
    }
    if (t.code || t.moved == t.length) return finish(t);
    if (phase_ == phase::ready && !failure_) post_piece(t);
}

// ---- served

/// Sends requests for as many gets and puts as the peer may be asked for at a time.
RDMACORO_DECL void session::ask_peer() noexcept {
    while (!asking_.empty() && asked_count_ < most_served && can_send_control()) {
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
        std::array<std::byte, service_request::wire_bytes> bytes;  // NOLINT: stored next
        request.store(bytes.data());
        if (!send_control(kind, bytes)) return;
        t.number = next_number_++;
        ++asked_count_;
        asking_.pop_front();
        t.at = transfer::stage::asked;
        asked_.push_back(t);
    }
}

/// The peer asks for a get or put.
RDMACORO_DECL void session::asked(const frame& f, const std::byte* request) noexcept {
    const service_request wanted = service_request::load(request);
    if (!engine_.serves() || serving_ == most_served) return fail(errc::protocol_violation);
    transfer* t = take_transfer();
    if (t == nullptr) return fail(errc::no_resources);
    const bool gets = f.kind == frame_kind::get;
    if (serving_++ == 0) engine_.serves_for(*this);
    ++counts_.served;
    t->moves = gets ? transfer::way::give : transfer::way::take;
    t->done = nullptr;
    t->number = wanted.operation;
    t->address = wanted.own_address;
    t->key = wanted.own_key;
    t->region_key = wanted.key;
    t->local = reinterpret_cast<std::byte*>(wanted.address);
    t->length = wanted.length;
    // A side that is closing answers, too: the peer may be closing as well, and waiting for that.
    t->code = failure_
                  ? status(errc::canceled)
                  : engine_.regions().check(wanted.key, wanted.address, wanted.length,
                                            gets ? access_rights::remote_read : access_rights::remote_write);
    t->at = transfer::stage::moving;
    transfers_.moves(*t);
    if (!t->code && !lease_local(*t)) t->code = errc::no_resources;
    if (t->code || t->length == 0) return finish(*t);
    transfers_.begin_partial(*t);
    post_piece(*t);
}

RDMACORO_DECL void session::send_answers() noexcept {
    while (!answers_.empty() && can_answer()) {
        transfer& t = *answers_.front();
        std::array<std::byte, one_sided_status::wire_bytes> bytes;  // NOLINT: stored next
        one_sided_status{t.number, static_cast<errc>(t.code.value)}.store(bytes.data());
        if (!send_control(frame_kind::status, bytes)) return;
        if (--serving_ == 0) static_cast<list_node<serving_tag>&>(*this).unlink();
        give_back(t);
    }
}

/// What the peer may be waiting for while this side waits for it: how its gets and puts ended, and credits.
RDMACORO_COLD void session::answer_while_waiting() noexcept {
    if (!answers_.empty()) send_answers();
    if ((window_.return_due() || window_.peer_is_short()) && window_.credits() != 0 && is_heard())
        static_cast<void>(send_control(frame_kind::credit));
}

/// The peer reports how a get or put ended; in any order.
RDMACORO_DECL void session::answered(const std::byte* answer) noexcept {
    const one_sided_status ended = one_sided_status::load(answer);
    transfer* t = asked_.front();
    while (t != nullptr && t->number != ended.operation) t = asked_.next(*t);
    if (t == nullptr || ended.outcome == errc::protocol_violation) return fail(errc::protocol_violation);
    --asked_count_;
    t->exact.reset();
    const bool by_this_side = failure_ && ended.outcome == errc::canceled;  // withdrawn by `close`
    t->code = by_this_side ? failure_.code() : status(ended.outcome);
    finish(*t);
    if (!asking_.empty()) mark_work();
}

// ---- ending

/// Whether the provider or the peer may still touch memory of users.
RDMACORO_DECL bool session::moving() const noexcept {
    return out_ != 0 || (asked_count_ != 0 && peer_may_move());
}

RDMACORO_DECL void session::refuse(std::uint64_t region_key) noexcept {
    for (transfer* t = transfers_.moving().front(); t != nullptr;) {
        transfer* const after = transfers_.moving().next(*t);
        if (t->done == nullptr && t->region_key == region_key) stop(*t, errc::bad_key);
        t = after;
    }
}
/// No more of `t` is posted: it ends with `code` when no piece of it is with the provider.
RDMACORO_DECL void session::stop(transfer& t, errc code) noexcept {
    if (!t.out) return end_early(t, code);
    if (!t.code) t.code = code;
}
/// Asks the peer to go no further with `t`, once; where that cannot be sent now, it is to be called again.
RDMACORO_DECL void session::withdraw(transfer& t) noexcept {
    if (t.withdrawn || !can_answer()) return;
    std::array<std::byte, sizeof t.number> number;  // NOLINT: stored next
    store_number(number.data(), t.number);
    t.withdrawn = send_control(frame_kind::withdraw, number);
}
RDMACORO_DECL void session::withdraw_asked() noexcept {
    for (transfer* t = asked_.front(); t != nullptr; t = asked_.next(*t)) withdraw(*t);
}
RDMACORO_DECL void session::withdrawn(std::uint32_t number) noexcept {
    transfer* t = transfers_.moving().front();
    while (t != nullptr && (t->done != nullptr || t->number != number)) t = transfers_.moving().next(*t);
    if (t != nullptr) stop(*t, errc::canceled);  // else its answer is under way
}
RDMACORO_DECL bool session::touches(std::uint64_t region_key) noexcept {
    for (transfer* t = transfers_.moving().front(); t != nullptr; t = transfers_.moving().next(*t)) {
        if (t->out && t->done == nullptr && t->region_key == region_key) return true;
    }
    return false;
}

RDMACORO_DECL bool session::gets() noexcept {
    for (transfer* t = transfers_.moving().front(); t != nullptr; t = transfers_.moving().next(*t)) {
        if (t->out && t->reads()) return true;
    }
    return false;
}

/// Ends all transfers. Precondition: neither the provider nor the peer touches their memory any more.
RDMACORO_DECL void session::complete_all(std::error_code reason) noexcept {
    const bool failed = static_cast<bool>(failure_);
    for (intrusive_list<transfer>* list : {&transfers_.moving(), &asking_, &asked_, &answers_}) {
        while (transfer* t = list->front()) {
            if (t->done != nullptr) {
                transfers_.abort(*t, reason, failed);
            } else {
                transfers_.end_partial(*t);
                give_back(*t);
            }
        }
    }
    asked_count_ = serving_ = 0;
    static_cast<list_node<serving_tag>&>(*this).unlink();
    transfers_.complete_finished(*this);
}

/// This side's transfers on a link that has failed end also while messages that came before wait for its user. Those that it serves end with
/// the link, or are answered.
RDMACORO_COLD void session::end_own_transfers() noexcept {
    if (!failure_.may_go_down(true, engine_.empty_polls())) return;
    const auto next_own = [](intrusive_list<transfer>& list, transfer* t) noexcept {
        while (t != nullptr && t->done == nullptr) t = list.next(*t);
        return t;
    };
    if (asking_.empty() && asked_.empty() &&
        next_own(transfers_.moving(), transfers_.moving().front()) == nullptr)
        return;
    if (moving() && lingers()) return;
    if (moving()) engine_.reopen_endpoint();
    for (intrusive_list<transfer>* list : {&transfers_.moving(), &asking_, &asked_}) {
        for (transfer* t = next_own(*list, list->front()); t != nullptr;) {
            transfer* const after = next_own(*list, list->next(*t));
            transfers_.abort(*t, failure_.code(), true);
            t = after;
        }
    }
    asked_count_ = 0;
    transfers_.complete_finished(*this);
}

RDMACORO_DECL void session::endpoint_gone() noexcept {
    to_ = FI_ADDR_UNSPEC;
    for (transfer* t = transfers_.moving().front(); t != nullptr;) {
        transfer* const after = transfers_.moving().next(*t);
        if (t->out) piece_over(*t, FI_ECANCELED);
        t = after;
    }
}

RDMACORO_DECL region session::expose(std::span<std::byte> memory, access_rights rights) noexcept {
    const bool written = allows(rights, access_rights::remote_write);
    region made = engine_.regions().add(written ? static_cast<region_owner&>(*this) : readable_,
                                        engine_.cache(), memory, rights);
    if (made) ++(written ? exposed_ : readable_.count);
    return made;
}
RDMACORO_DECL void session::readable_regions::deregister(std::uint64_t key) noexcept {
    --count;
    of.engine_.deregister(key);
    if (of.late_) of.engine_.leaves(of);
}
RDMACORO_DECL void session::deregister(std::uint64_t key) noexcept {
    --exposed_;
    engine_.deregister(key);
    if (late_) engine_.leaves(*this);
}

/// The memory belongs to its owner again at return: no further piece is posted, and this waits for the end of the one that the provider
/// has, or for the peer's answer. Where neither comes soon, all links of the domain end.
RDMACORO_DECL void session::revoke(completion& c) noexcept {
    auto* t = static_cast<transfer*>(c.transport_state);
    if (t->out) {
        t->code = errc::canceled;
        static_cast<void>(::fi_cancel(&engine_.device().endpoint()->fid, &t->scratch));
    }
    const bool stays = engine_.wait_while([&]() noexcept {
        if (t->at == transfer::stage::asked) {
            withdraw(*t);
            answer_while_waiting();
            engine_.watching().look();  // a peer that is gone moves nothing
        }
        return t->out || (t->at == transfer::stage::asked && peer_may_move());
    });
    if (stays) {
        fail(errc::peer_lost);
        engine_.reopen_endpoint();
    }
    if (t->at == transfer::stage::asked) {
        --asked_count_;
        fail(errc::peer_lost);  // its answer would match no transfer
    }
    transfers_.end_partial(*t);
    give_back(*t);
}

}  // namespace rdmacoro::detail::fabric
