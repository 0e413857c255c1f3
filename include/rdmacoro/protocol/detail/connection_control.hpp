// What a connection does seldom: the handshake, goodbyes, credit of its own, unusual receives, and its end. Included by
// connection.hpp alone.
#pragma once

#include <rdmacoro/protocol/connection.hpp>

#include <cstring>

namespace rdmacoro::detail {

template <class Transport, class Protocols>
connection<Transport, Protocols>::~connection() {
    if (phase_ != phase::down) link_.close(make_error_code(errc::closed));
    for (unexpected_message* m = box_->matching().oldest(); m != nullptr; m = box_->matching().after(*m)) {
        if (m->from == this) m->from = nullptr;
    }
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::cancel_send(send_request& r) noexcept {
    if (r.linked()) {
        r.unlink();
        r.finish(make_error_code(errc::canceled));
        drain();
        return;
    }
    engines_.with(r.policy_, [&](auto& engine) noexcept { engine.cancel_send(r); });
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::begin_close(phase_waiter& closer) noexcept {
    // What a link matches may still be on its way after the last word: who was left says goodbye, too, and waits.
    if (phase_ != phase::open && !(delegates && phase_ == phase::half_closed)) {
        close(make_error_code(errc::closed));
        closer.reached(closer, {});
        return;
    }
    phase_ = phase::closing;
    closer_ = &closer;
    engines_.each([](auto& engine) noexcept {
        if constexpr (requires { engine.leaving(); }) engine.leaving();
    });
    maybe_goodbye();
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::move_to(mailbox_base& box, peer_id source) noexcept {
    matcher& before = std::exchange(box_, &box)->matching();
    source_ = source;
    for (unexpected_message* m = before.oldest(); m != nullptr;) {
        unexpected_message* after = before.after(*m);
        if (m->from == this) {
            before.remove(*m);
            m->source = source;
            if (receive_request* r = connection_base::match(m->tag)) {  // counted when it was kept
                meet(*m, *r);
            } else {
                box.matching().add(*m);
            }
        }
        m = after;
    }
    if constexpr (delegates) delegate().look();
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::link_down(std::error_code why) noexcept {
    const bool in_good_order = peer_said_goodbye_ || phase_ == phase::closing;
    phase_ = phase::down;
    reason_ = in_good_order && why == errc::peer_lost ? make_error_code(errc::closed) : why;
    engines_.each([&](auto& engine) noexcept { engine.fail(reason_); });
    while (send_request* r = queue_.pop_front()) r->finish(reason_);
    fail_receives();
    tell(opener_, reason_);
    tell(closer_, {});
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::say_what_is_owed() noexcept {
    if (owes_hello_) {
        const wire_hello own{.budget = credits_.granted(), .fingerprint = Protocols::fingerprint};
        const auto fixed = own.store();
        const std::string text = Protocols::text().substr(0, wire_hello::most_text);
        const std::span<const std::byte> pieces[] = {fixed, std::as_bytes(std::span(text))};
        if (say(static_cast<std::uint8_t>(control_kind::hello), 0, 0, const_buffers(std::span(pieces))) !=
            post_result::done)
            return;
        owes_hello_ = false;
    }
    if (owes_credit_) {
        // A header gives back 65,535 at most, which may be far less than a message cost.
        while (credits_.overdue() && say(control_kind::credit)) ++counts_.credit_messages;
        owes_credit_ = credits_.overdue();
    }
    if (owes_goodbye_seen_ && say(control_kind::goodbye_seen)) owes_goodbye_seen_ = false;
    if (owes_goodbye_ && say(control_kind::goodbye)) owes_goodbye_ = false;
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::hello_arrived(const wire_header& h,
                                                     std::span<const std::byte> payload) noexcept {
    const auto hello = wire_hello::load(payload);
    if (h.kind != static_cast<std::uint8_t>(control_kind::hello) || h.credits != 0 || !hello) {
        violation();
    } else if (hello->version != wire_version) {
        refusal_ = std::string("this side speaks version ") + std::to_string(wire_version) +
                   " of the wire protocol, " + link_.peer_name() + " version " +
                   std::to_string(hello->version);
        close(make_error_code(errc::version_mismatch));
    } else if (hello->fingerprint != Protocols::fingerprint) {
        const auto text = payload.subspan(wire_hello::wire_bytes);
        refusal_ = std::string("this side has the protocols \"") + Protocols::text() + "\", " +
                   link_.peer_name() + " has \"" + printable(text) + "\"";
        close(make_error_code(errc::protocol_mismatch));
    } else if (hello->budget < least_budget) {
        violation();
    } else {
        credits_.opened(hello->budget);
        phase_ = phase::open;
        tell(opener_, {});
        drain();  // what was sent before the peer had said what it grants
    }
}

template <class Transport, class Protocols>
std::string connection<Transport, Protocols>::printable(std::span<const std::byte> raw) {
    std::string text;
    for (const std::byte b : raw) {
        const char c = static_cast<char>(b);
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text;
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::control_arrived(const wire_header& h,
                                                       std::span<const std::byte> payload) noexcept {
    if (!payload.empty()) {
        violation();
        return;
    }
    if constexpr (delegates) {
        if (h.kind != static_cast<std::uint8_t>(control_kind::credit)) {
            if (!delegate().last_word(h)) violation();
            return;
        }
    }
    obey(h);
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::obey(const wire_header& h) noexcept {
    switch (static_cast<control_kind>(h.kind)) {
        case control_kind::credit: return;
        case control_kind::goodbye:
            if (peer_said_goodbye_) break;
            peer_said_goodbye_ = true;
            if (phase_ == phase::open) phase_ = phase::half_closed;
            owes_goodbye_seen_ = true;
            say_what_is_owed();
            while (send_request* r = queue_.pop_front()) r->finish(make_error_code(errc::closed));
            speculation([](auto& engine) noexcept { engine.peer_leaves(); });
            if constexpr (delegates) delegate().peer_leaves();
            fail_receives();
            return;
        case control_kind::goodbye_seen:
            if (phase_ != phase::closing || !said_goodbye_ || owes_goodbye_) break;
            close(make_error_code(errc::closed));
            return;
        case control_kind::hello: break;
    }
    violation();
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::fill_unusual(receive_request& r,
                                                    std::span<const std::byte> payload) noexcept {
    if (r.is_lent()) {
        lend_at_once(r, payload);
    } else if (payload.size() > r.into_.size()) {
        r.finish(errc::truncated, payload.size());
    } else {
        copy_in(payload, r.into_, 0);
        count_copy(payload.size());
        r.finish({});
    }
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::lend_at_once(receive_request& r,
                                                    std::span<const std::byte> payload) noexcept {
    *r.loan_ = link_.keep();
    if (!*r.loan_) {
        unexpected_message* m = box_->store().make(payload.size());
        if (m == nullptr) {
            r.finish(make_error_code(errc::no_resources));
            return;
        }
        if (!payload.empty()) std::memcpy(m->payload(), payload.data(), payload.size());
        m->stored = payload.size();
        count_copy(payload.size());
        *r.loan_ = message_store::lend(*m);
    } else {
        ++counts_.lent;
    }
    r.finish({});
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::begin_other(send_request& r, start_result& begun) noexcept {
    if (r.policy_ == Protocols::none) {
        r.finish(errc::message_too_long);
    } else {
        engines_.with(r.policy_, [&](auto& engine) noexcept { begun = engine.start(r); });
    }
}

template <class Transport, class Protocols>
delivery connection<Transport, Protocols>::deliver_other(const wire_header& h,
                                                         std::span<const std::byte> payload) noexcept {
    delivery answer = delivery::taken;
    const bool known = engines_.dispatch_others(
        h.kind, [&](auto& engine, unsigned kind) noexcept { answer = engine.arrived(kind, h, payload); });
    if (!known) control_arrived(h, payload);
    return answer;
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::send_later(send_request& r) noexcept {
    if (phase_ == phase::down) {
        r.finish(reason_);
    } else if (phase_ == phase::closing || peer_said_goodbye_) {
        r.finish(make_error_code(errc::closed));
    } else {
        queue_.push_back(r);
    }
}

}  // namespace rdmacoro::detail
