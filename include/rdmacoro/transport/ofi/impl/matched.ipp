// How messages that the provider matches go by a link's tagged endpoint.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <rdma/fi_tagged.h>

namespace rdmacoro::detail::fabric {

RDMACORO_DECL post_result matched_side::no_room(bool provider_is_busy) noexcept {
    if (provider_is_busy) session_.stall();
    return session_.no_room();
}

// ---- sending

RDMACORO_DECL session::sent matched_side::send(std::uint64_t tag, const tagged_head& head,
                                               const const_buffers& payload) noexcept {
    engine_.matched_works(session_);
    const std::size_t bytes = head.bytes() + payload.size();
    const bool injects = bytes <= inject_limit_;
    slot* staged = nullptr;
    if (!injects) {
        if (session_.staged_ == session::most_staged) return session::sent::busy;
        staged = engine_.slots().take();
        if (staged == nullptr) {
            session_.stall();
            return session::sent::busy;
        }
    }
    std::byte* const to = injects ? engine_.scratch() : staged->data;
    head.store(to);
    copy_out(payload, 0, to + head.bytes(), payload.size());
    const ssize_t answer =
        injects ? ::fi_tinject(endpoint_.get(), to, bytes, to_, tag)
                : ::fi_tsend(endpoint_.get(), to, bytes, staged->descriptor, to_, tag, &staged->scratch);
    const session::sent how = session_.judge(answer);
    if (how == session::sent::yes) {
        ++session_.counts_.posts;
        ++session_.counts_.messages;
        ++(injects ? session_.counts_.injected : session_.counts_.staged);
        if (staged != nullptr) {
            staged->now = slot::use::tagged;
            staged->of = session_.number();
            ++session_.staged_;
        }
    } else if (staged != nullptr) {
        engine_.slots().give(*staged);
    }
    return how;
}

/// Nullptr: too many are on their way, or there is no memory.
RDMACORO_DECL long_message* matched_side::take_long() noexcept {
    if (long_.exhausted() && long_.size() == most_long) return nullptr;
    return long_.take([](long_message& made, std::size_t place) noexcept {
        made.place = static_cast<std::uint16_t>(place);
    });
}

RDMACORO_DECL post_result matched_side::post(std::uint64_t tag, std::uint32_t note,
                                             const const_buffers& payload, completion& c) noexcept {
    if (!session_.is_up()) return post_result::failed;
    if (to_ == FI_ADDR_UNSPEC) return no_room(false);
    tagged_head head;
    head.link = session_.peer_number_;
    head.note = note;
    head.length = payload.size();
    session::sent how;
    if (payload.size() <= traits_.buffered_bytes) {
        how = send(tag, head, payload);
        if (how == session::sent::yes) return post_result::done;
    } else {
        long_message* m = take_long();
        if (m == nullptr) return no_room(false);
        const auto piece = payload.front();
        m->open = engine_.regions().add(engine_, engine_.cache(),
                                        {const_cast<std::byte*>(piece.data()), payload.size()},
                                        access_rights::remote_read);
        if (!m->open) {
            long_.give(*m);
            session_.fail(errc::no_resources);
            return post_result::failed;
        }
        head.number = m->number();
        head.address = m->open.remote().address;
        head.key = m->open.remote().key;
        how = send(tag, head, {});
        if (how == session::sent::yes) {
            m->done = &c;
            return post_result::posted;
        }
        m->open.reset();
        long_.give(*m);
    }
    return how == session::sent::busy ? no_room(false) : post_result::failed;
}

RDMACORO_DECL bool matched_side::fetched(std::uint32_t number) noexcept {
    const std::uint32_t place = (number & 0xffff) - 1;
    if (place >= long_.size()) return false;
    long_message& m = long_[place];
    if (m.done == nullptr || m.linked() || m.number() != number) return false;
    ++m.generation;
    fetched_.push_back(
        m);  // `serve` ends the region: a peer's get may still be under way, and waiting for it polls
    session_.mark_work();
    return true;
}

// ---- receiving

RDMACORO_DECL tagged_operation* matched_side::take(tagged_completion& c) noexcept {
    const bool makes = operations_.exhausted();
    if (makes && engine_.slots().reserve(1) != 0) return nullptr;
    tagged_operation* t = operations_.take([this](tagged_operation& made, std::size_t place) noexcept {
        made.place = static_cast<std::uint32_t>(place);
        made.owner = this;
    });
    if (t == nullptr) {
        engine_.slots().unreserve(1);
        return nullptr;
    }
    t->memory = engine_.slots().take();
    if (t->memory == nullptr) {
        operations_.give(*t);
        return nullptr;
    }
    t->user = &c;
    t->claims = t->canceled = false;
    c.transport_state = t;
    return t;
}
RDMACORO_DECL void matched_side::give_slot(tagged_operation& t) noexcept {
    if (t.memory != nullptr) engine_.slots().give(*std::exchange(t.memory, nullptr));
}
/// One that the provider has sent, or will not send.
RDMACORO_DECL void matched_side::give_sent(slot& s) noexcept {
    engine_.slots().give(s);
    if (!session_.slot_back()) engine_.slots().unreserve(1);
}
RDMACORO_DECL void matched_side::give(tagged_operation& t) noexcept {
    give_slot(t);
    t.at = stage::idle;
    t.user = nullptr;
    operations_.give(t);
}

RDMACORO_DECL post_result matched_side::begin(tagged_operation* t, std::uint64_t tag,
                                              std::uint64_t ignored) noexcept {
    engine_.matched_works(session_);
    if (t == nullptr) return no_room(true);
    const ssize_t answer = ::fi_trecv(endpoint_.get(), t->memory->data, engine_.slots().slot_bytes(),
                                      t->memory->descriptor, FI_ADDR_UNSPEC, tag, ignored, &t->scratch);
    if (answer == 0) {
        t->at = stage::posted;
        if (!t->claims) ++receives_;
        return post_result::posted;
    }
    give(*t);
    if (is_busy(answer) || answer == -FI_ENOMEM) return no_room(true);
    session_.fail(errc::peer_lost);
    return post_result::failed;
}

RDMACORO_DECL post_result matched_side::receive(std::uint64_t tag, std::uint64_t mask,
                                                const mutable_buffers& into, tagged_completion& c) noexcept {
    if (!session_.is_up()) return post_result::failed;
    if (receives_ == most_receives) return no_room(false);
    tagged_operation* t = take(c);
    if (t != nullptr) t->into = into;
    return begin(t, tag, ~mask & (~std::uint64_t{0} >> (64 - traits_.tag_bits)));
}

RDMACORO_DECL post_result matched_side::claim(tagged_completion& c) noexcept {
    if (!session_.is_up()) return post_result::failed;
    tagged_operation* t = take(c);
    if (t != nullptr) t->claims = true;
    return begin(t, 0, ~std::uint64_t{0} >> (64 - traits_.tag_bits));
}

RDMACORO_DECL post_result matched_side::receive_claimed(claimed_message name, const mutable_buffers& into,
                                                        tagged_completion& c) noexcept {
    if (!session_.is_up()) return post_result::failed;
    tagged_operation& t = operations_[name - 1];
    t.into = into;
    t.user = &c;
    c.transport_state = &t;
    c.tag = t.tag;
    c.bytes = t.head.length;
    c.note = t.head.note;
    if (t.head.number != 0) return fill(t);
    copy_in({t.memory->data + tagged_head::wire_bytes, std::min(t.head.length, into.size())}, into, 0);
    give(t);
    return post_result::done;
}

RDMACORO_DECL void matched_side::discard(claimed_message name) noexcept {
    tagged_operation& t = operations_[name - 1];
    t.user = nullptr;
    if (t.head.number != 0) return have(t);
    give(t);
}

RDMACORO_DECL bool matched_side::withdraw(completion& c) noexcept {
    if (ended_) return false;
    auto& t = *static_cast<tagged_operation*>(c.transport_state);
    if (t.at == stage::posted) {
        static_cast<void>(::fi_cancel(&endpoint_->fid, &t.scratch));
        static_cast<void>(progress());
    }
    if (t.at != stage::ended || !t.canceled) return false;
    t.unlink();
    give(t);
    return true;
}

/// A receive has matched a long message, and gets its payload; where there is no room for the get, it waits.
RDMACORO_DECL post_result matched_side::fill(tagged_operation& t) noexcept {
    give_slot(t);
    const std::size_t bytes = std::min<std::size_t>(t.head.length, t.into.size());
    if (bytes == 0) {
        t.at = stage::ended;
        ended_operations_.push_back(t);
        session_.mark_work();
        return post_result::posted;
    }
    t.got.of = &t;
    t.got.done = [](completion& self, std::error_code outcome) noexcept {
        tagged_operation& of = *static_cast<tagged_operation::get_completion&>(self).of;
        of.owner->got(of, outcome);
    };
    const remote_region there{t.head.address, bytes, t.head.key, access_rights::remote_read};
    t.at = stage::getting;
    if (session_.get(there, {t.into.front().data(), bytes}, t.got) == post_result::retry) {
        t.at = stage::waiting;
        waiting_.push_back(t);
    }
    return post_result::posted;  // where the link is down it ends with the link
}

RDMACORO_DECL void matched_side::got(tagged_operation& t, std::error_code outcome) noexcept {
    if (!outcome) {
        tagged_completion& c = *t.user;
        have(t);
        return c.done(c, {});
    }
    if (session_.is_up()) session_.fail(errc::protocol_violation);  // there is no such memory
    tagged_completion& c = *t.user;
    give(t);
    c.done(c, outcome);
}

/// A long message's payload has arrived, or is not wanted: notifies the sender.
RDMACORO_DECL void matched_side::have(tagged_operation& t) noexcept {
    give_slot(t);
    t.user = nullptr;
    if (unsent_.empty() && send_fetched(t)) return give(t);
    t.at = stage::unsent;
    unsent_.push_back(t);
}

RDMACORO_DECL bool matched_side::send_fetched(tagged_operation& t) noexcept {
    std::array<std::byte, sizeof t.head.number> number;  // NOLINT: stored next
    store_number(number.data(), t.head.number);
    return session_.is_up() && session_.can_send_control() &&
           session_.send_control(frame_kind::fetched, number);
}

RDMACORO_DECL void matched_side::send_owed() noexcept {
    if (ended_ || !session_.is_up()) return;
    if (!introduced_ && endpoint_ != nullptr && session_.can_send_control()) {
        std::array<std::byte, connect_info::most_address> own{};
        std::size_t bytes = own.size();
        if (::fi_getname(&endpoint_->fid, own.data(), &bytes) != 0 || bytes > own.size())
            return session_.fail(errc::no_resources);
        introduced_ = session_.send_control(frame_kind::tagged_address, std::span(own).first(bytes));
    }
    while (tagged_operation* t = unsent_.front()) {
        if (!send_fetched(*t)) return;
        t->unlink();
        give(*t);
    }
}

// ---- completions

RDMACORO_DECL void matched_side::over(void* context, std::uint64_t tag, std::size_t bytes,
                                      int error) noexcept {
    auto* const about = static_cast<operation*>(context);
    if (about == nullptr) {
        if (error == 0) return;
        engine_.count_failed_inject();
        return session_.fail(errc::peer_lost);
    }
    if (about->what == operation::kind::slot) {
        give_sent(static_cast<slot&>(*about));
        return session_.slot_sent(error);
    }
    auto& t = static_cast<tagged_operation&>(*about);
    if (!t.claims) --receives_;
    t.at = stage::ended;
    t.tag = tag;
    t.canceled = error == FI_ECANCELED;
    if (error == 0) ++session_.counts_.received;
    if (error != 0 && !t.canceled) return session_.fail(errc_of(error));
    // A message of another sender: the receive that it matched is lost to the peer's message, and so is the order.
    if (!t.canceled && (!t.head.load(t.memory->data, bytes) || t.head.link != session_.number()))
        return session_.fail(errc::protocol_violation);
    ended_operations_.push_back(t);
    session_.mark_work();
}

RDMACORO_DECL unsigned matched_side::progress() noexcept {
    constexpr std::size_t batch = 16;
    std::array<fi_cq_tagged_entry, batch> entries;  // NOLINT: the provider writes them
    unsigned came = 0;
    while (came < 8 * batch) {
        const ssize_t got = ::fi_cq_read(queue_.get(), entries.data(), batch);
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry wrong{};
            if (const ssize_t read = ::fi_cq_readerr(queue_.get(), &wrong, 0); read <= 0) {
                if (read < 0 && read != -FI_EAGAIN) {
                    engine_.note_failure("read the errors of a completion queue of tagged messages", read);
                    session_.fail(errc::peer_lost);
                }
                break;
            }
            if (wrong.err != FI_ECANCELED) engine_.note_failure(*queue_, wrong);
            over(wrong.op_context, wrong.tag, 0, wrong.err != 0 ? wrong.err : FI_EIO);
            ++came;
            continue;
        }
        if (got < 0 && got != -FI_EAGAIN) {
            engine_.note_failure("read a completion queue of tagged messages", got);
            session_.fail(errc::peer_lost);
        }
        if (got <= 0) break;
        for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i)
            over(entries[i].op_context, entries[i].tag, entries[i].len, 0);
        came += static_cast<unsigned>(got);
    }
    return came;
}

/// Calls the completion of a receive or claim that ended.
RDMACORO_DECL void matched_side::complete(tagged_operation& t) noexcept {
    tagged_completion& c = *t.user;
    if (t.canceled) {
        give(t);
        return c.done(c, make_error_code(errc::canceled));
    }
    c.tag = t.tag;
    c.bytes = t.head.length;
    c.note = t.head.note;
    if (t.claims) {
        t.claims = false;
        t.at = stage::claimed;
        t.user = nullptr;
        c.claim = t.place + std::uint64_t{1};
    } else if (t.head.number == 0) {
        copy_in({t.memory->data + tagged_head::wire_bytes, std::min(t.head.length, t.into.size())}, t.into,
                0);
        give(t);
    } else if (t.memory != nullptr && !t.into.empty()) {
        static_cast<void>(fill(t));
        return;
    } else {
        have(t);
    }
    c.done(c, {});
}

RDMACORO_DECL unsigned matched_side::serve() noexcept {
    unsigned moved = 0;
    while (tagged_operation* t = ended_operations_.pop_front()) {
        complete(*t);
        ++moved;
    }
    while (long_message* m = fetched_.pop_front()) {
        m->open.reset();
        completion* c = std::exchange(m->done, nullptr);
        long_.give(*m);
        c->done(*c, {});
        ++moved;
    }
    intrusive_list<tagged_operation> turn;
    turn.splice_back(waiting_);
    while (tagged_operation* t = turn.pop_front()) static_cast<void>(fill(*t));
    return moved;
}

RDMACORO_DECL void matched_side::end(std::error_code reason) noexcept {
    if (std::exchange(ended_, true)) return;
    engine_.watching().unwatch(completions_);
    // A provider may hold on to operations of a closed endpoint.
    for (std::size_t i = 0; i < operations_.size(); ++i) {
        tagged_operation& t = operations_[i];
        if (t.at == stage::posted) static_cast<void>(::fi_cancel(&endpoint_->fid, &t.scratch));
    }
    static_cast<void>(progress());
    for (std::size_t i = 0; i < operations_.size(); ++i) {
        tagged_operation& t = operations_[i];
        t.unlink();
        if (t.user == nullptr) continue;
        tagged_completion& c = *std::exchange(t.user, nullptr);
        c.done(c, reason);
    }
    for (std::size_t i = 0; i < long_.size(); ++i) {
        long_message& m = long_[i];
        m.open.reset();
        m.unlink();
        if (m.done == nullptr) continue;
        completion& c = *std::exchange(m.done, nullptr);
        c.done(c, reason);
    }
}

}  // namespace rdmacoro::detail::fabric
