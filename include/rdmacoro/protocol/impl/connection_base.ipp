// Bodies of connection_base.hpp: from beginning to end, and control messages.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace rdmacoro::detail {

// ---- from beginning to end

RDMACORO_COLD connection_base::connection_base(mailbox_base& box, peer_id source,
                                               const list_identity& list) noexcept
    : mailbox_(&box),
      source_(source),
      share_(
          box.pool(), box.budget(), list.overtakes,
          [](void* self) noexcept { static_cast<connection_base*>(self)->short_of_memory(); }, this),
      feeding_(this, [](void* self) noexcept { static_cast<connection_base*>(self)->feed_again(); }),
      rest_(this, [](void* self) noexcept { static_cast<connection_base*>(self)->go_on(); }),
      list_(list) {
    credits_ = credit_account(share_.budget(), share_.budget() - share_.grant());
    box.owner().described().push_back(described_);
}

RDMACORO_COLD void connection_base::begin_handshake(const capabilities& link, bool answers) {
    const tuning limits = mailbox_->options().limits.or_else(tuning::of_environment());
    if (limits.any()) {
        tuned_ = limits.applied_to(link);
        limits_ = &tuned_;
    }
    own_name_.note(peer_name());
    answers_ = answers;
    owes_hello_ = !answers;
    send_owed();
}

RDMACORO_COLD void connection_base::disown() noexcept {
    require_thread_of(&mailbox_->owner(), "a link of", "was destroyed");
    if (phase_ != phase::down) close_link(make_error_code(errc::closed));
    ahead_.unlink();
    mailbox_->matching().each_stored(source_, [&](unexpected_message& m) noexcept {
        if (m.from == this) m.from = nullptr;
    });
}

RDMACORO_COLD void connection_base::begin_close(phase_waiter& closer) noexcept {
    require_thread_of(&mailbox_->owner(), "a link of", "was closed");
    if (phase_ == phase::closing) {
        closer.next = std::exchange(closer_, &closer);
        return;
    }
    // Messages that the link matches may still be on their way after the goodbye: the other side sends one, too, and waits.
    if (phase_ != phase::open && !(list_.link_matches && phase_ == phase::half_closed)) {
        close(make_error_code(errc::closed));
        closer.reached(closer, {});
        return;
    }
    phase_ = phase::closing;
    closer_ = &closer;
    notify_engines(engine_event::closing, {});
    maybe_goodbye();
}

RDMACORO_COLD void connection_base::close(std::error_code why) noexcept {
    if (phase_ == phase::down) return;
    ending_ = why;
    close_link(why);
}

[[gnu::noinline, gnu::cold]] RDMACORO_DECL delivery connection_base::violation() noexcept {
    close(make_error_code(errc::protocol_violation));
    return delivery::taken;
}

RDMACORO_COLD void connection_base::move_to(mailbox_base& box, peer_id source) noexcept {
    mailbox_base& before_box = *std::exchange(mailbox_, &box);
    matcher& before = before_box.matching();
    const peer_id was = std::exchange(source_, source);
    before_box.discarding().move_to(box.discarding(), before, box.matching(), source);
    before.each_stored(was, [&](unexpected_message& m) noexcept {
        if (m.from != this) return;
        before.remove(m);
        m.source = source;
        if (hides(m)) return box.matching().add_hidden(m);
        if (receive_request* r = match(m.tag)) {  // counted when it was stored
            match(m, *r);
        } else {
            box.matching().add(m);
        }
    });
    notify_engines(engine_event::moved, {});
    ahead_.moved();
}

RDMACORO_COLD void connection_base::link_down(std::error_code why) noexcept {
    const bool in_good_order = ends_in_order();
    phase_ = phase::down;
    feeding_.stop();
    rest_.stop();
    credits_.hurry(
        1);  // see `send_credit`: each stored message that is received gives back its part of the pool
    share_.leave(credits_.stored());
    receives_ = false;
    reason_ = in_good_order && why == errc::peer_lost ? make_error_code(errc::closed) : why;
    notify_engines(engine_event::failed, reason_);
    ahead_.fail(reason_);
    while (send_request* r = queue_.pop_front()) r->finish(reason_);
    fail_receives();
    notify(opener_, reason_);
    notify(closer_, {});
    if (link_watcher* const watches = mailbox_->watcher()) watches->link_ended(source_);
}

RDMACORO_COLD void connection_base::fail_receives() noexcept {
    const std::error_code why = reason_ ? reason_ : make_error_code(errc::closed);
    mailbox_->matching().end_all_of(source_, why, this);
}

RDMACORO_DECL void connection_base::notify(phase_waiter*& waiter, std::error_code outcome) noexcept {
    for (phase_waiter* waits = std::exchange(waiter, nullptr); waits != nullptr;) {
        phase_waiter& one = *waits;
        waits = std::exchange(one.next, nullptr);
        one.reached(one, outcome);
    }
}

// ---- control messages

RDMACORO_DECL post_result connection_base::post_word(std::uint8_t kind, std::uint8_t flags, tag_type tag,
                                                     const const_buffers& payload) noexcept {
    const std::uint16_t credits =
        kind == static_cast<std::uint8_t>(control_kind::hello) ? std::uint16_t{0} : credits_.payable();
    const post_result answer = post_raw(wire_header{kind, flags, credits, tag}.store(), payload);
    if (answer == post_result::done) credits_.paid(credits);
    return answer;
}

RDMACORO_DECL post_result connection_base::post_copied_kind(std::uint8_t kind, std::uint8_t flags,
                                                            tag_type tag, std::span<const std::byte> payload,
                                                            bool begins) noexcept {
    const post_result answer = post_word(kind, flags, tag, const_buffers(payload));
    if (begins && answer == post_result::done) note_begun(tag);
    return answer;
}

RDMACORO_DECL bool connection_base::send_word(control_kind kind) noexcept {
    const tag_type before = posted_with_link();  // messages that go another way
    return post_word(static_cast<std::uint8_t>(kind), 0, before, {}) == post_result::done;
}

RDMACORO_COLD bool connection_base::send_hello() noexcept {
    const wire_hello own{
        .budget = credits_.granted(), .fingerprint = list_.fingerprint, .withheld = credits_.withheld()};
    const auto fixed = own.store();
    std::string text;
    try {
        text = list_.text();
    } catch (const std::bad_alloc&) {
        // Only people read it.
    }
    const std::size_t shown = text.size() < wire_hello::most_text ? text.size() : wire_hello::most_text;
    const std::span<const std::byte> pieces[] = {fixed, std::as_bytes(std::span(text.data(), shown))};
    return post_word(static_cast<std::uint8_t>(control_kind::hello), 0, 0,
                     const_buffers(std::span(pieces))) == post_result::done;
}

[[gnu::noinline]] RDMACORO_DECL void connection_base::send_owed() noexcept {
    if (owes_hello_) {
        if (!send_hello()) return;
        owes_hello_ = false;
    }
    if (owes_credit_) {
        // A header gives back 65,535 at most, which may be far less than a message cost.
        bool fed = false;
        while (credits_.overdue() && send_word(control_kind::credit)) {
            ++counts_.credit_messages;
            fed = true;
        }
        owes_credit_ = credits_.overdue();
        if (fed && !owes_credit_ && credits_.hurried()) {
            credits_.take_time();
            feeding_.stop();
            ahead_.peer_fed();
        }
    }
    const auto recall = static_cast<std::uint8_t>(control_kind::recall);
    if (owes_recall_ && post_word(recall, 0, asked_back_, {}) == post_result::done) owes_recall_ = false;
    if (owes_given_up_ && post_word(recall, 1, given_up_, {}) == post_result::done) owes_given_up_ = false;
    if (owes_starved_ && send_word(control_kind::starved)) owes_starved_ = false;
    if (owes_goodbye_seen_ && send_word(control_kind::goodbye_seen)) owes_goodbye_seen_ = false;
    if (owes_goodbye_ && send_word(control_kind::goodbye)) owes_goodbye_ = false;
}

RDMACORO_DECL void connection_base::send_credit() noexcept {
    if (phase_ == phase::down) return share_.leave(credits_.stored());
    regrant(false);
    owes_credit_ = true;
    if (phase_ != phase::opening) send_owed();
}

RDMACORO_COLD void connection_base::starve() noexcept {
    if (said_starved_) return;
    said_starved_ = true;
    owes_starved_ = true;
    send_owed();
}

RDMACORO_COLD void connection_base::regrant(bool starving) noexcept {
    if (!share_.rises() || phase_ == phase::opening || phase_ == phase::down) return;
    if (const std::uint32_t excess = share_.excess()) {
        share_.shrink(credits_.withhold(excess));
    } else if (credits_.withheld() != 0) {
        credits_.grant_more(starving ? share_.rise_in_need() : share_.rise(2 * credits_.grant()));
    }
}

RDMACORO_COLD void connection_base::short_of_memory() noexcept {
    const std::uint64_t received = received_so_far();
    const time_point now = mailbox_->owner().now();
    if (received != std::exchange(received_before_, received)) idle_since_ = now;
    if (now - idle_since_ < long_idle || asked_back_ != 0 || phase_ != phase::open) return;
    asked_back_ = share_.held();
    owes_recall_ = true;
    send_owed();
}

RDMACORO_COLD void connection_base::recall_arrived(const wire_header& h) noexcept {
    if (h.flags == 0 && !owes_given_up_ && h.tag != 0 && h.tag <= credits_.peer_budget()) {
        // Sends that wait need what there is.
        given_up_ = queue_.empty() ? credits_.give_up(static_cast<std::uint32_t>(h.tag)) : 0;
        owes_given_up_ = true;
        send_owed();
    } else if (h.flags == 1 && !owes_recall_ && asked_back_ != 0 && h.tag <= asked_back_ &&
               credits_.taken_back(static_cast<std::uint32_t>(h.tag))) {
        // Meanwhile it may have shrunk by messages that were received.
        const auto units = static_cast<std::uint32_t>(h.tag);
        const std::uint32_t surplus = units > share_.held() ? units - share_.held() : 0;
        share_.shrink(units - surplus);
        credits_.grant_more(surplus);
        asked_back_ = 0;
    } else {
        violation();
    }
}

// Credit that comes back one message at a time would cost more than the messages, but the messages that are stored may be
// received never: it is gathered for a moment. The stored messages of a link that matches by itself are not known here.
RDMACORO_COLD void connection_base::feed() noexcept {
    scheduler& owner = mailbox_->owner();
    credits_.hurry(credits_.grant() / 8);
    if (credits_.overdue() || (credits_.stored() == 0 && !list_.link_matches)) return feed_now();
    feeding_.start(owner, deadline_after(owner.now(), gathering));
}

RDMACORO_COLD void connection_base::peer_starved() noexcept {
    const std::uint64_t before = counts_.credit_messages;
    charged_when_starved_ = credits_.charged();
    feeding_.stop();  // that of a former need may be late for this one
    regrant(true);
    feed();
    // A peer that got credit says it again if that was not enough.
    if (counts_.credit_messages == before && list_.overtakes) ahead_.peer_starved();
}

RDMACORO_COLD void connection_base::feed_now() noexcept {
    const std::uint64_t before = counts_.credit_messages;
    credits_.hurry(1);
    if (credits_.owes()) send_credit();  // less goes than is owed, or nothing, where the pool is short
    if (counts_.credit_messages != before || !share_.rises() || credits_.withheld() == 0 ||
        phase_ != phase::open || credits_.charged() != charged_when_starved_) {
        asked_in_vain_ = 0;
        return;
    }
    // Other links give back what they do not use once they have been idle for a while, and a few are asked at a time.
    scheduler& owner = mailbox_->owner();
    feeding_.start(owner, deadline_after(owner.now(), ask_again * (1 << asked_in_vain_)));
    if (asked_in_vain_ != most_doublings) ++asked_in_vain_;
}
RDMACORO_COLD void connection_base::feed_again() noexcept {
    if (credits_.charged() == charged_when_starved_) regrant(true);
    feed_now();
}

RDMACORO_COLD void connection_base::limit_unasked() {
    if (list_.carries == nullptr) return;
    const capabilities& link = capabilities_in_force();
    const std::size_t whole = std::size_t{credits_.peer_budget()} * credit_bytes;
    capabilities limited = link;
    const std::size_t of_quarter = payload_stored_in(whole / 4);
    limited.max_message = of_quarter;
    if (!list_.carries({of_quarter + 1, false}, limited)) limited.max_message = payload_stored_in(whole);
    if (limited.max_message >= link.max_message) return;
    tuned_ = limited;
    limits_ = &tuned_;
}

[[gnu::noinline]] RDMACORO_DECL void connection_base::maybe_goodbye() noexcept {
    if (sent_goodbye_ || active_sends_ != 0 || !queue_.empty()) return;
    sent_goodbye_ = true;
    owes_goodbye_ = true;
    send_owed();
}

RDMACORO_COLD void connection_base::hello_arrived(const wire_header& h,
                                                  std::span<const std::byte> payload) noexcept {
    if (std::exchange(answers_, false)) {  // also where they do not fit: the peer says why, then
        owes_hello_ = true;
        send_owed();
    }
    const auto hello = wire_hello::load(payload);
    if (h.kind != static_cast<std::uint8_t>(control_kind::hello) || h.credits != 0 || !hello) {
        violation();
    } else if (hello->version != wire_version) {
        refuse(errc::version_mismatch, hello->version, {});
    } else if (hello->fingerprint != list_.fingerprint) {
        refuse(errc::protocol_mismatch, 0, payload.subspan(wire_hello::wire_bytes));
    } else if (hello->budget < least_budget || hello->withheld > hello->budget) {
        violation();
    } else {
        credits_.opened(hello->budget, hello->withheld);
        limit_unasked();
        phase_ = phase::open;
        opened_ = true;
        notify(opener_, {});
        drain();  // sends that began before the peer's grant was known
    }
}

RDMACORO_COLD void connection_base::refuse(errc why, std::uint32_t version,
                                           std::span<const std::byte> list) noexcept {
    try {
        if (why == errc::version_mismatch) {
            refusal_.append("this side speaks version ").append(std::to_string(wire_version));
            refusal_.append(" of the wire protocol, ").append(peer_name());
            refusal_.append(" version ").append(std::to_string(version));
        } else {
            refusal_.append("this side has the protocols \"").append(list_.text()).append("\", ");
            refusal_.append(peer_name()).append(" has \"");
            for (const std::byte b : list) {
                const char c = static_cast<char>(b);
                refusal_ += c >= ' ' && c <= '~' ? c : '?';  // nothing that a terminal obeys
            }
            refusal_ += '"';
        }
    } catch (const std::bad_alloc&) {
        refusal_.clear();  // the code alone is reported
    }
    close(make_error_code(why));
}

RDMACORO_DECL delivery connection_base::control_arrived(const wire_header& h,
                                                        std::span<const std::byte> payload) noexcept {
    delivery answer = delivery::taken;
    if (h.kind == static_cast<std::uint8_t>(control_kind::ahead) && list_.overtakes) {
        answer = ahead_.arrived(h, payload);
    } else if (!payload.empty()) {
        violation();
    } else if (list_.link_matches && h.kind != static_cast<std::uint8_t>(control_kind::credit) &&
               h.kind != static_cast<std::uint8_t>(control_kind::starved)) {
        if (!last_word(h)) violation();
    } else {
        obey(h);
    }
    return ahead_.walked_far() ? delivery::pause : answer;
}

RDMACORO_COLD void connection_base::obey(const wire_header& h) noexcept {
    switch (static_cast<control_kind>(h.kind)) {
        case control_kind::credit: return;
        case control_kind::starved: peer_starved(); return;
        case control_kind::recall:
            if (!list_.overtakes) break;
            recall_arrived(h);
            return;
        case control_kind::goodbye:
            if (peer_said_goodbye_) break;
            peer_said_goodbye_ = true;
            receives_ = false;
            if (phase_ == phase::open) phase_ = phase::half_closed;
            owes_goodbye_seen_ = true;
            send_owed();
            while (send_request* r = queue_.pop_front()) {
                ahead_.left_queue(*r);
                r->finish(make_error_code(errc::closed));
            }
            notify_engines(engine_event::peer_left, {});
            fail_receives();
            return;
        case control_kind::goodbye_seen:
            if (phase_ != phase::closing || !sent_goodbye_ || owes_goodbye_) break;
            close(make_error_code(errc::closed));
            return;
        case control_kind::hello:
        case control_kind::ahead: break;
    }
    violation();
}

}  // namespace rdmacoro::detail
