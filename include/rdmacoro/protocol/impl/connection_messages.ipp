// Bodies of connection_base.hpp: sends, and messages on their way to a receive.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>

#include <utility>

namespace rdmacoro::detail {

// ---- sends

RDMACORO_COLD void connection_base::cancel_send(send_request& r) noexcept {
    if (r.linked() && !r.in_flight_) {
        r.unlink();
        ahead_.left_queue(r);
        r.finish_canceled_in_queue();
        drain();
        return;
    }
    cancel_in_engine(r);
}

RDMACORO_COLD status connection_base::revoke(send_request& r) noexcept {
    if (revoke_posted(r.posted_)) return {};
    close(make_error_code(errc::no_resources));
    return errc::no_resources;
}

[[gnu::noinline]] RDMACORO_DECL void connection_base::send_later(send_request& r) noexcept {
    r.via_ = this;
    if (phase_ == phase::down) {
        r.finish(reason_);
    } else if (phase_ == phase::closing || peer_said_goodbye_) {
        r.finish(make_error_code(errc::closed));
    } else {
        r.since_ = mailbox_->owner().coarse_now().time_since_epoch().count();
        queue_.push_back(r);
        if (starved_) starve();
    }
}

[[gnu::noinline]] RDMACORO_DECL void connection_base::wait(send_request& r, start_result why) noexcept {
    r.since_ = mailbox_->owner().coarse_now().time_since_epoch().count();
    queue_.push_front(r);
    if (why == start_result::wait_credit) {
        ++counts_.credit_waits;
    } else {
        ++counts_.room_waits;
    }
    starved_ = why != start_result::wait_room;
    if (starved_) starve();
}

[[gnu::noinline]] RDMACORO_DECL void connection_base::drain() noexcept {
    if (draining_ || ahead_.holds_queue() || (phase_ != phase::open && phase_ != phase::closing)) return;
    draining_ = true;
    start_result last = start_result::begun;
    for (unsigned begun = 0; last == start_result::begun && !queue_.empty(); ++begun) {
        if (begun == most_begun) {
            go_on_later();
            break;
        }
        send_request* const r = queue_.pop_front();
        last = begin_queued(*r);
        if (last != start_result::begun) queue_.push_front(*r);
    }
    draining_ = false;
    starved_ = last == start_result::wait_credit || last == start_result::wait_peer;
    if (starved_) {
        starve();
    } else if (queue_.empty()) {
        said_starved_ = false;
    }
    if (phase_ == phase::closing) maybe_goodbye();
}

RDMACORO_COLD void connection_base::go_on_later() noexcept {
    scheduler& owner = mailbox_->owner();
    rest_.start(owner, owner.now());
}
RDMACORO_COLD void connection_base::go_on() noexcept {
    ahead_.go_on();
    drain();
}

[[gnu::noinline]] RDMACORO_DECL void connection_base::credit_came() noexcept {
    said_starved_ = false;
    drain();
}

RDMACORO_DECL void connection_base::writable() noexcept {
    send_owed();
    // In turn: neither the pieces of long messages nor the sends that wait take all the room each time.
    sends_first_ = !sends_first_;
    if (sends_first_) drain();
    notify_engines(engine_event::writable, {});
    ahead_.writable();
    drain();
    if (phase_ == phase::closing) maybe_goodbye();
}

// ---- messages on their way to a receive

RDMACORO_DECL receive_request* connection_base::match_counted(tag_type tag) noexcept {
    receive_request* r = match(tag);
    if (r == nullptr) return nullptr;
    message_seen();
    if (r->canceling_) leaving_ = r;
    if (r->announcement_ != receive_request::not_announced) note_superseded(*r);
    return r;
}

RDMACORO_DECL bool connection_base::better_to_defer() noexcept {
    if (!mailbox_->owner().has_ready() || deferrals_ >= most_deferrals) {
        deferrals_ = 0;
        return false;
    }
    ++deferrals_;
    return true;
}

RDMACORO_DECL unexpected_message* connection_base::keep_message(std::size_t policy, tag_type tag,
                                                                std::size_t bytes, std::size_t room,
                                                                std::uint32_t cost) noexcept {
    if (!credits_.charge(cost)) {
        violation();
        return nullptr;
    }
    unexpected_message* m = mailbox_->store().make(room);
    if (m == nullptr) {
        close(make_error_code(errc::no_resources));
        return nullptr;
    }
    m->from = this;
    m->source = source_;
    m->cost = cost;
    m->tag = tag;
    m->bytes = bytes;
    m->policy = static_cast<std::uint8_t>(policy);
    return m;
}

RDMACORO_DECL void connection_base::announce(unexpected_message& m) noexcept {
    message_seen();
    ++counts_.unexpected;
    mailbox_->matching().add(m);
}

RDMACORO_DECL void connection_base::offer(unexpected_message& m) noexcept {
    m.source = source_;  // this may have moved to another mailbox since it began
    if (receive_request* r = match_counted(m.tag)) {
        hand_over(m, *r);
        leaving_ = nullptr;  // it has ended
    } else {
        announce(m);
    }
}

RDMACORO_DECL void connection_base::free(unexpected_message& m) noexcept {
    give_back(m.cost);
    message_store::release(m);
}

RDMACORO_DECL bool connection_base::complete(unexpected_message& m,
                                             std::span<const std::byte> payload) noexcept {
    unexpected_message* whole = mailbox_->store().make(payload.size());
    if (whole == nullptr) return false;
    whole->from = m.from;
    whole->source = m.source;
    whole->cost = m.cost;
    whole->tag = m.tag;
    whole->bytes = whole->stored = payload.size();
    whole->policy = m.policy;
    mailbox_->matching().replace(m, *whole);
    message_store::release(m);
    if (payload.empty()) return true;
    copy_long(whole->payload(), payload.data(), payload.size());
    count_copy(payload.size());
    return true;
}

RDMACORO_COLD void connection_base::lose(unexpected_message& m) noexcept {
    m.lost = m.stored != m.bytes;
    m.complete = true;
    if (hides(m)) mailbox_->matching().hide_from_any(m);
}

RDMACORO_COLD void connection_base::lose_unannounced(unexpected_message& m) noexcept {
    m.lost = true;
    if (!hides(m)) return offer(m);
    m.source = source_;  // as `offer` says
    mailbox_->matching().add_hidden(m);
}

RDMACORO_DECL void connection_base::hand_over(unexpected_message& m, receive_request& r) noexcept {
    connection_base* const from = m.from;
    const received message{m.bytes, m.tag, m.source};
    if (m.lost) [[unlikely]] {
        const std::error_code why = from != nullptr ? from->why_failed() : make_error_code(errc::peer_lost);
        if (from != nullptr) from->give_back(m.cost);
        message_store::release(m);
        end_unreceived(from, r, 0, message.tag, why);
        return;
    }
    if (r.is_lent()) {
        if (from != nullptr) from->give_back(m.cost);  // from here on it is the user's memory
        if (m.bytes <= loan::longest_here) {
            if (m.bytes != 0) {
                copy_long(r.lent().place(m.bytes).data(), m.payload(), m.bytes);
                if (from != nullptr) from->count_copy(m.bytes);
            }
            message_store::release(m);
        } else {
            r.lent().lend(message_store::lend(m));
        }
        end_receive(from, r, message);
        return;
    }
    status outcome;
    if (m.bytes > r.into_.size()) {
        outcome = errc::truncated;
    } else if (arrival_consumer* const consumer = r.consumer()) {
        consumer->take(0, {m.payload(), m.bytes});
    } else if (m.bytes != 0) {
        copy_in({m.payload(), m.bytes}, r.into_, 0);
        if (from != nullptr) from->count_copy(m.bytes);
    }
    if (from != nullptr) from->give_back(m.cost);
    message_store::release(m);
    end_receive(from, r, message, outcome);
}

[[gnu::noinline]] RDMACORO_DECL void
connection_base::fill_unusual(receive_request& r, tag_type tag, std::span<const std::byte> payload) noexcept {
    status outcome;
    if (!r.is_lent()) {
        if (payload.size() > r.into_.size()) {
            outcome = errc::truncated;
        } else if (arrival_consumer* const consumer = r.consumer()) {
            consumer->take(0, payload);
        } else {
            copy_in(payload, r.into_, 0);
            count_copy(payload.size());
        }
    } else if (payload.size() <= loan::longest_here) {
        if (!payload.empty()) {
            copy_bytes(r.lent().place(payload.size()).data(), payload.data(), payload.size());
            count_copy(payload.size());
        }
    } else if (r.lent().lend(lend_payload())) {
        ++counts_.lent;
    } else if (unexpected_message* m = mailbox_->store().make(payload.size())) {
        copy_long(m->payload(), payload.data(), payload.size());
        m->stored = payload.size();
        count_copy(payload.size());
        r.lent().lend(message_store::lend(*m));
    } else {
        outcome = errc::no_resources;
    }
    end_receive(this, r, {payload.size(), tag, source_}, outcome);
}

RDMACORO_DECL bool connection_base::begin_fill(receive_request& r, std::size_t bytes, tag_type tag) noexcept {
    r.filling_ = this;
    status outcome = errc::truncated;
    if (!r.is_lent()) {
        if (bytes <= r.into_.size()) return true;
    } else if (bytes <= loan::longest_here && bytes <= mailbox_->options().lent_bytes) {
        r.into_ = r.lent().place(bytes);
        return true;
    } else if (bytes <= mailbox_->options().lent_bytes) {
        r.block_ = mailbox_->store().make(bytes);
        if (r.block_ != nullptr) return true;
        outcome = errc::no_resources;
    }
    end_receive(this, r, {bytes, tag, source_}, outcome);
    return false;
}

RDMACORO_DECL std::span<std::byte> connection_base::space(receive_request& r, std::size_t at,
                                                          std::size_t most) noexcept {
    const std::span<std::byte> piece =
        r.block_ != nullptr ? std::span<std::byte>(r.block_->payload() + at, most) : r.into_.at_offset(at);
    return piece.first(piece.size() < most ? piece.size() : most);
}

RDMACORO_DECL mutable_buffers connection_base::destination(receive_request& r, std::size_t bytes) noexcept {
    if (r.block_ != nullptr) return std::span<std::byte>(r.block_->payload(), bytes);
    return r.into_;
}

RDMACORO_DECL void connection_base::fill(receive_request& r, std::size_t at,
                                         std::span<const std::byte> payload) noexcept {
    if (payload.empty()) return;
    if (arrival_consumer* const consumer = r.consumer()) return consumer->take(at, payload);
    if (r.block_ != nullptr) {
        copy_long(r.block_->payload() + at, payload.data(), payload.size());
    } else {
        copy_in(payload, r.into_, at);
    }
    count_copy(payload.size());
}

[[gnu::noinline]] RDMACORO_DECL void connection_base::end_fill(receive_request& r, tag_type tag,
                                                               std::size_t bytes) noexcept {
    if (r.block_ != nullptr) {
        r.block_->stored = bytes;
        r.lent().lend(message_store::lend(*std::exchange(r.block_, nullptr)));
    }
    end_receive(this, r, {bytes, tag, source_});
}

[[gnu::noinline, gnu::cold]] RDMACORO_DECL void
connection_base::end_unreceived(connection_base* from, receive_request& r, std::size_t bytes, tag_type tag,
                                status outcome) noexcept {
    r.filling_ = from;
    r.got_ = {bytes, tag, r.source_};
    if (r.block_ != nullptr) message_store::release(*std::exchange(r.block_, nullptr));
    r.finish(outcome, std::error_code(outcome) == errc::truncated ? bytes : 0);
}

}  // namespace rdmacoro::detail
