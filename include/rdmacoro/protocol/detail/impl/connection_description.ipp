// How connections and engines describe the operations that they hold.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/detail/connection_description.hpp>
#include <rdmacoro/protocol/detail/eager_engine.hpp>
#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>
#include <rdmacoro/protocol/detail/segmented_engine.hpp>
#include <rdmacoro/protocol/detail/speculation_receiver.hpp>
#include <rdmacoro/protocol/detail/speculation_sender.hpp>
#include <rdmacoro/protocol/detail/staged_receiver.hpp>

#include <utility>

namespace rdmacoro::detail {

// ---- connection_description

RDMACORO_COLD void connection_description::send(const send_request& r, const char* stage, next_actor next,
                                                std::size_t moved) noexcept {
    operation_sketch one = sketch(&r, r.synchronous_ ? "ssend" : "send", stage, next);
    one.tagged = true;
    one.tag = r.tag_;
    one.mask = ~std::uint64_t{0};
    one.bytes = r.from_.size();
    one.moved = moved;
    one.waited = waited_since(r.since_);
    one.serial = static_cast<std::uint64_t>(r.since_);
    into_.add(one);
}

RDMACORO_COLD void connection_description::receive(const receive_request& r, const char* stage,
                                                   next_actor next, std::size_t bytes,
                                                   std::size_t moved) noexcept {
    if (!r.begun()) return;  // it stands in the place of a canceled one: no operation
    operation_sketch one = sketch(&r, r.is_lent() ? "recv_lent" : "recv", stage, next);
    one.tagged = true;
    one.tag = r.wanted_.tag;
    one.mask = r.wanted_.mask;
    one.bytes = bytes != 0 || r.is_lent() ? bytes : r.into_.size();
    one.moved = moved;
    if (next == next_actor::peer_send) one.stored = stored;
    if (r.waiter) one.waited = waited_since(r.since_);
    one.serial = r.filling_ == nullptr ? r.sequence_ : messages;
    into_.add(one);
}

RDMACORO_COLD void connection_description::probe(const probe_request& r) noexcept {
    operation_sketch one = sketch(&r, "probe", "no message waits", next_actor::peer_send);
    one.tagged = true;
    one.tag = r.wanted_.tag;
    one.mask = r.wanted_.mask;
    if (r.waiter) one.waited = waited_since(r.since_);
    into_.add(one);
}

RDMACORO_COLD std::optional<duration>
connection_description::waited_since(duration::rep when) const noexcept {
    const time_point since{duration(when)};
    if (since == time_point{} || since > now_) return {};
    return now_ - since;
}

RDMACORO_COLD void connection_description::other(const void* id, const char* what, const char* stage,
                                                 next_actor next) noexcept {
    into_.add(sketch(id, what, stage, next));
}

RDMACORO_COLD operation_sketch connection_description::sketch(const void* id, const char* what,
                                                              const char* stage,
                                                              next_actor next) const noexcept {
    operation_sketch one;
    one.what = what;
    one.peer = peer_;
    one.stage = stage;
    one.next = next;
    one.id = id;
    return one;
}

// ---- mailbox_base and connection_base

RDMACORO_COLD void mailbox_base::describe(void* self, description& into) noexcept {
    auto& here = *static_cast<mailbox_base*>(self);
    try {
        connection_description all(into, "any", here.owner_.now());
        all.stored = here.matcher_.unexpected();
        here.matcher_.each_posted(any_source, [&](receive_request& r) noexcept {
            all.receive(r, "posted, no message has met it", next_actor::peer_send);
        });
        here.matcher_.each_probe(any_source, [&](probe_request& p) noexcept {
            if (p.source_ == any_source) all.probe(p);
        });
    } catch (...) {
        into.miss_one();
    }
}

RDMACORO_COLD void connection_base::describe(void* self, description& into) noexcept {
    auto& here = *static_cast<connection_base*>(self);
    if (here.phase_ == phase::down) return;
    try {
        connection_description all(into, here.peer_name(), here.mailbox_->owner().now());
        all.messages = here.counts_.messages_sent + here.counts_.messages_received;
        here.describe_engines(all);
        here.describe_own(all);
        matcher& matching = here.mailbox_->matching();
        matching.each_stored(here.source_, [&](unexpected_message&) noexcept { ++all.stored; });
        // Those from any source are the mailbox's, which lists them once, however many connections it has.
        matching.each_posted(here.source_, [&](receive_request& r) noexcept {
            if (!r.canceling_)  // an engine lists those
                all.receive(r, "posted, no message has met it", next_actor::peer_send);
        });
        matching.each_probe(here.source_, [&](probe_request& p) noexcept {
            if (p.source_ == here.source_) all.probe(p);
        });
    } catch (...) {
        into.miss_one();
    }
}

/// Sends that wait, the handshake and the close.
RDMACORO_COLD void connection_base::describe_own(connection_description& into) noexcept {
    const bool opening = phase_ == phase::opening;
    const next_actor greets = owes_hello_ ? into.room : next_actor::peer_poll;
    if (opener_ != nullptr)
        into.other(opener_, "handshake",
                   owes_hello_ ? "no room for this side's" : "the peer has not answered", greets);
    ahead_.describe(into);
    const send_request* const first = queue_.front();
    const bool credit = starved_ && first != nullptr && !credits_.covers(first->from_.size());
    // A peer that does not poll takes nothing, and so gives no credit back.
    const bool polls = !into.unread;
    const next_actor head = opening    ? greets
                            : credit   ? (polls ? next_actor::credit : next_actor::peer_poll)
                            : starved_ ? next_actor::peer_receive
                                       : into.room;
    const char* const why =
        opening  ? "waits for the handshake"
        : credit ? (polls ? "waits for credit" : "waits for credit, and the peer has not taken what was sent")
        : starved_ ? "waits for a free stream"
                   : "waits for room in the link";
    for (send_request* r = queue_.front(); r != nullptr; r = queue_.next(*r)) {
        if (ahead_.offers(*r)) {
            into.send(*r, "offered to a receive ahead of its turn", next_actor::peer_poll);
        } else {
            into.send(*r, r == first ? why : "waits behind other sends", head);
        }
    }
    for (const phase_waiter* closer = closer_; closer != nullptr; closer = closer->next) {
        if (!queue_.empty()) {
            into.other(closer, "close", "waits for sends that have not begun", head);
        } else if (active_sends_ != 0) {
            into.other(closer, "close", "waits for sends that are under way", next_actor::peer_receive);
        } else if (owes_goodbye_) {
            into.other(closer, "close", "no room for the goodbye", into.room);
        } else {
            into.other(closer, "close", "goodbye is sent, the peer has not answered", next_actor::peer_poll);
        }
    }
}

// ---- engines

RDMACORO_COLD void ahead_engine::describe(connection_description& into) noexcept {
    if (filled_ != nullptr)
        into.receive(*filled_, "is being filled, ahead of older messages", next_actor::peer_poll, total_,
                     arrived_);
    if (sending_ != nullptr)
        into.send(*sending_, "goes to its receive ahead of its turn", into.room, sending_->sent_);
}

RDMACORO_COLD void eager_engine_base::describe(connection_description& into) noexcept {
    if (receive_ != nullptr)
        into.receive(*receive_, "is being filled", next_actor::network, bytes_, arrived_);
    for (send_request* r = posted_.front(); r != nullptr; r = posted_.next(*r))
        into.send(*r, "handed to the network", into.room);
}

RDMACORO_COLD void segmented_engine::describe(connection_description& into) noexcept {
    for (std::uint32_t id = 0; id < out_.size(); ++id) {
        const out_slot& slot = out_[id];
        if (slot.request == nullptr) continue;
        const send_request& r = *slot.request;
        if (r.in_flight_) {
            into.send(r, "a piece is with the network", into.room, r.sent_);
        } else if (r.sent_ < allowed(r)) {
            if (asked_ >= most_asked) {
                into.send(r, "its pieces have come and are not taken", next_actor::peer_poll, r.sent_);
            } else {
                into.send(r, "waits for room for its next piece", into.room, r.sent_);
            }
        } else {
            into.send(r, "announced, no receive has met it", next_actor::peer_receive, r.sent_);
        }
    }
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const in_slot& slot = in(id);
        if (slot.request == nullptr) continue;
        if ((slot.owed & owes_proceed) != 0) {
            into.receive(*slot.request, "met, no room to ask for the rest", into.room, slot.total,
                         slot.arrived);
        } else {
            into.receive(*slot.request, "is being filled", next_actor::peer_poll, slot.total, slot.arrived);
        }
    }
}

RDMACORO_COLD void rendezvous_sender::describe(connection_description& into) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const slot& s = at(id);
        if (s.request == nullptr) continue;
        const send_request& r = *s.request;
        switch (s.now) {
            case state::free: break;
            case state::requested:
                if (s.helping) {
                    into.send(r, "both sides copy it", next_actor::peer_poll);
                } else if ((s.owed & owes_sent) != 0) {
                    into.send(r, "a part is put, no room to say so", into.room, r.sent_);
                } else if (r.sent_ != 0) {
                    into.send(r, "a part is put, the peer has not asked for the next", next_actor::peer_poll,
                              r.sent_);
                } else {
                    into.send(r, "requested, not received", next_actor::peer_receive);
                }
                break;
            case state::putting:
                into.send(r, s.stalled ? "no room for the next put" : "is being put",
                          s.stalled ? into.room : into.transfers, r.sent_);
                break;
            case state::refused:
                into.send(r, "the peer closed its memory and has not said why", next_actor::peer_poll,
                          r.sent_);
                break;
            case state::ending:
                into.send(r,
                          s.sent_flags == 0 ? "all is put, no room to say so"
                                            : "the peer takes no more, no room to answer",
                          into.room, r.sent_);
                break;
            case state::leaving: into.send(r, "canceled, no room to say so", into.room, r.sent_); break;
            case state::left:
                into.send(r, "canceled, the peer has not answered", next_actor::peer_poll, r.sent_);
                break;
        }
    }
}

RDMACORO_COLD void rendezvous_receiver::describe(connection_description& into) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const slot& s = at(id);
        if (s.request == nullptr) continue;
        const receive_request& r = *s.request;
        switch (s.now) {
            case state::none:
            case state::stored: break;
            case state::getting:
                into.receive(r, s.stalled ? "no room for the next get" : "is being got",
                             s.stalled ? into.room : into.transfers, s.total);
                break;
            case state::refused:
                into.receive(r, "the peer closed its memory and has not said why", next_actor::peer_poll,
                             s.total);
                break;
            case state::awaiting: {
                const bool asked = (s.owed & owes_ready) == 0;
                into.receive(r, asked ? "met, the peer has not put it" : "met, no room to ask for it",
                             asked ? next_actor::peer_poll : into.room, s.total, s.position);
                break;
            }
            case state::withdrawn: {
                const bool said = (s.owed & owes_withdraw) == 0;
                into.receive(r, said ? "canceled, the peer has not answered" : "canceled, no room to say so",
                             said ? next_actor::peer_poll : into.room, s.total, s.position);
                break;
            }
            case state::closing:
                into.receive(r, "canceled, the peer is in the middle of a copy", next_actor::peer_poll,
                             s.total);
                break;
        }
    }
}

RDMACORO_COLD void speculation_sender::describe(connection_description& into) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const slot& s = at(id);
        if (s.request == nullptr) continue;
        switch (s.now) {
            case state::free:
            case state::offered: break;
            case state::claimed:
                into.send(*s.request, s.stalled ? "no room for the next put" : "is being put to its receive",
                          s.stalled ? into.room : into.transfers);
                break;
            case state::refused:
                into.send(*s.request, "the peer closed its memory and has not said why",
                          next_actor::peer_poll);
                break;
            case state::ending:
                into.send(*s.request,
                          s.finish_flags == finish_done       ? "all is put, no room to say so"
                          : s.finish_flags == finish_canceled ? "canceled, no room to say so"
                                                              : "the peer takes no more, no room to answer",
                          into.room);
                break;
        }
    }
}

RDMACORO_COLD void speculation_receiver::describe(connection_description& into) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const slot& s = at(id);
        if (s.request == nullptr) continue;  // one that is only announced is posted, too
        if (s.now == state::claimed)
            into.receive(*s.request, "the peer puts it", next_actor::peer_poll, s.bytes);
        if (s.now == state::revoking) {
            const bool said = (s.owed & owes_revoke) == 0;
            into.receive(*s.request,
                         said ? "canceled, the peer has not answered" : "canceled, no room to say so",
                         said ? next_actor::peer_poll : into.room, s.bytes);
        }
    }
    // Those that are canceled and posted until announcements with their tag are taken back.
    connection_base& connection = context_.connection();
    connection.mailbox().matching().each_posted(connection.source(), [&](receive_request& r) noexcept {
        if (!r.canceling_) return;
        bool said = true;
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            if (at(id).tag == r.wanted_.tag && (at(id).owed & owes_withdraw) != 0) said = false;
        }
        into.receive(r, said ? "canceled, the peer has not answered" : "canceled, no room to say so",
                     said ? next_actor::peer_poll : into.room);
    });
}

RDMACORO_COLD void staged_receiver::describe(connection_description& into) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const slot& s = at(id);
        if (s.request == nullptr) continue;
        if (s.now == state::refused) {
            into.receive(*s.request, "the peer's memory was refused", next_actor::peer_poll, s.total);
        } else {
            into.receive(*s.request, s.stalled ? "no room for the next get" : "is being got",
                         s.stalled ? into.room : into.transfers, s.total);
        }
    }
}

RDMACORO_COLD void rendezvous_halves::describe(connection_description& into) noexcept {
    out_.describe(into);
    in_.describe(into);
}

}  // namespace rdmacoro::detail
