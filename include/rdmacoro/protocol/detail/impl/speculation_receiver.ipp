// Bodies of detail/speculation_receiver.hpp.
#pragma once

#include <rdmacoro/protocol/detail/speculation_receiver.hpp>

#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD speculation_receiver::speculation_receiver(rendezvous_context& context,
                                                         unsigned first_kind) noexcept
    : owed_messages(context.connection(), slot_type_of<slot, owing_slot>),
      context_(context),
      first_kind_(first_kind) {}

RDMACORO_COLD void speculation_receiver::posted(receive_request& r, std::uint64_t seen) noexcept {
    if (!window_.on()) {
        r.announcement_ = watched;
        return;
    }
    if (slots_.exhausted(most_announcements) || withdrawing(r.wanted_.tag)) return;
    const auto ahead = context_.connection().mailbox().matching().ahead_of(r, most_announced_ahead);
    if (!ahead) return;
    const std::uint32_t id = slots_.take();
    if (id == slot_table::none) return;
    slot& s = at(id);
    announcement_body body;
    body.number = id;
    body.ahead = *ahead;
    body.seen = seen;
    std::byte raw[announcement_body::most_bytes];
    bool sent = expose(r, s);
    if (sent) {
        s.regions.name_in(body.destination);
        sent = context_.post_copied(first_kind_ + speculation_announce, 0, r.wanted_.tag, body.store(raw)) ==
               post_result::done;
    }
    if (!sent) {
        s.regions.clear();
        slots_.give(id);
        return;
    }
    s.request = &r;
    s.tag = r.wanted_.tag;
    s.now = state::announced;
    r.announcement_ = static_cast<std::uint16_t>(id);
    ++context_.counts().announced;
}

RDMACORO_COLD void speculation_receiver::superseded(receive_request& r, bool rendezvous) noexcept {
    metrics& counts = context_.counts();
    const std::uint16_t id = std::exchange(r.announcement_, receive_request::not_announced);
    if (id == watched) {
        if (window_.watched(rendezvous)) ++counts.speculation_resumed;
        return;
    }
    slot& s = at(id);
    ++(rendezvous ? counts.announcements_crossed : counts.announcements_mispredicted);
    judge(false);
    // The sender began this message without it, so it never uses it: it has dropped it, or will.
    s.request = nullptr;
    s.regions.clear();
    if (s.now == state::announced) free(id);
}

RDMACORO_COLD bool speculation_receiver::cancel(receive_request& r) noexcept {
    if (!r.wanted_.exact()) return true;
    // Receives with this tag that were posted later count on this one to take a message before them.
    bool wait = false;
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (s.request == nullptr || s.tag != r.wanted_.tag || s.request->source_ != r.source_ ||
            s.request->sequence_ < r.sequence_)
            continue;
        if (s.now == state::announced) {
            s.now = state::withdrawing;
            s.awaits_answer = true;
            owe(id, owes_withdraw);
        }
        if (s.now == state::withdrawing) wait = true;
    }
    r.canceling_ = wait;
    return !wait;
}

RDMACORO_COLD bool speculation_receiver::forget(receive_request& r) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (s.request != &r || (s.now != state::claimed && s.now != state::revoking)) continue;
        if (s.now == state::revoking) return false;
        s.now = state::revoking;
        s.request = nullptr;
        owe(id, owes_revoke);
        const bool said = (s.owed & owes_revoke) == 0 && context_.link_capabilities().revokes_at_once;
        if (said && !context_.touches_closed_memory()) return true;
        s.request = &r;
        if (said) owe(id, owes_end);
        return false;
    }
    return true;
}

RDMACORO_COLD bool speculation_receiver::claimed(const wire_header& h,
                                                 std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || payload.size() != 8 || s->request == nullptr ||
        (s->now != state::announced && s->now != state::withdrawing))
        return false;
    const auto bytes = load_number<std::uint64_t>(payload.data());
    receive_request& r = *s->request;
    if (bytes == 0 || bytes > r.into_.size()) return false;
    connection_base& connection = context_.connection();
    connection.mailbox().matching().withdraw(r);
    r.announcement_ = receive_request::not_announced;
    s->now = state::claimed;
    s->bytes = static_cast<std::size_t>(bytes);
    static_cast<void>(connection.begin_fill(r, s->bytes));  // it fits
    ++context_.counts().announcements_met;
    judge(true);
    if (r.canceling_ && forget(r)) connection.fail_fill(r, make_error_code(errc::canceled));
    // Now, and not with the answer to its withdrawal: announcements made meanwhile would count on them.
    if (!withdrawing(s->tag)) end_canceled(s->tag);
    return true;
}

RDMACORO_COLD delivery speculation_receiver::finished(const wire_header& h,
                                                      std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || !payload.empty() || h.flags > finish_canceled) return context_.violation();
    if (s->now != state::claimed && s->now != state::revoking) return context_.violation();
    const bool revoked = s->now == state::revoking;
    if (h.flags == finish_revoked && !revoked) return context_.violation();
    s->regions.clear();
    s->owed = static_cast<std::uint8_t>(s->owed & ~(owes_revoke | owes_end));
    receive_request* const r = std::exchange(s->request, nullptr);
    free(static_cast<std::uint32_t>(h.tag));
    if (r == nullptr) return delivery::taken;
    if (h.flags == finish_done) {
        context_.connection().end_fill(*r, s->tag, s->bytes);
    } else {
        context_.connection().fail_fill(*r, make_error_code(revoked ? errc::canceled : errc::peer_canceled));
    }
    return delivery::taken;
}

RDMACORO_COLD delivery speculation_receiver::withdrawn(const wire_header& h,
                                                       std::span<const std::byte> payload) noexcept {
    slot* const s = slot_of(h);
    if (s == nullptr || !payload.empty() || !s->awaits_answer || (s->owed & owes_withdraw) != 0)
        return context_.violation();
    const auto id = static_cast<std::uint32_t>(h.tag);
    s->awaits_answer = false;
    const tag_type tag = s->tag;
    if (s->now == state::withdrawing) {
        if (receive_request* r = std::exchange(s->request, nullptr)) {  // no message has matched it meanwhile
            r->announcement_ = receive_request::not_announced;
            ++context_.counts().announcements_withdrawn;
        }
        s->regions.clear();
        free(id);
    } else if (s->now == state::free) {
        slots_.give(id);
    }
    if (!withdrawing(tag)) end_canceled(tag);
    return delivery::taken;
}

RDMACORO_COLD void speculation_receiver::forget_announced() noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (s.now != state::announced && s.now != state::withdrawing) continue;
        if (s.request != nullptr) s.request->announcement_ = receive_request::not_announced;
        s.request = nullptr;
        s.regions.clear();
        if ((s.owed & owes_withdraw) != 0) s.awaits_answer = false;  // never sent
        s.owed = 0;
        free(id);
    }
}

RDMACORO_COLD void speculation_receiver::fail(std::error_code reason) noexcept {
    forget_announced();
    forget_owed();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (receive_request* r = std::exchange(s.request, nullptr))
            context_.connection().fail_fill(*r, reason);
        s.regions.clear();
        s.now = state::free;
    }
}

RDMACORO_COLD speculation_receiver::slot* speculation_receiver::slot_of(const wire_header& h) noexcept {
    return h.tag < slots_.size() ? &at(static_cast<std::uint32_t>(h.tag)) : nullptr;
}

RDMACORO_COLD void speculation_receiver::free(std::uint32_t id) noexcept {
    slot& s = at(id);
    s.now = state::free;
    if (!s.awaits_answer) slots_.give(id);
}

RDMACORO_COLD bool speculation_receiver::withdrawing(tag_type tag) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        const slot& s = at(id);
        if (s.now == state::withdrawing && s.tag == tag) return true;
    }
    return false;
}

RDMACORO_COLD void speculation_receiver::judge(bool used) noexcept {
    if (window_.announced(used)) ++context_.counts().speculation_stopped;
}

RDMACORO_COLD bool speculation_receiver::expose(receive_request& r, slot& s) noexcept {
    if (r.into_.pieces() > remote_pieces::most) return false;
    for (std::size_t i = 0; i < r.into_.pieces(); ++i) {
        const std::span<std::byte> piece = r.into_[i];
        if (piece.empty()) continue;
        region open = context_.expose(piece, access_rights::remote_write);
        if (!open || !s.regions.add(std::move(open))) return false;
    }
    return true;
}

/// Ends the receives with this tag that were canceled and have waited for their announcements to end.
RDMACORO_COLD void speculation_receiver::end_canceled(tag_type tag) noexcept {
    connection_base& connection = context_.connection();
    matcher& matching = connection.mailbox().matching();
    matching.each_posted(connection.source(), tag, [&](receive_request& r) noexcept {
        if (!r.canceling_) return;
        connection.mailbox().leave(r);
        r.finish(make_error_code(errc::canceled));
    });
}

RDMACORO_COLD post_result speculation_receiver::send_owed(std::uint32_t id, std::uint8_t message) noexcept {
    if (message == owes_end) return context_.touches_closed_memory() ? post_result::retry : post_result::done;
    const unsigned kind = message == owes_withdraw ? speculation_withdraw : speculation_revoke;
    return context_.post_copied(first_kind_ + kind, 0, id, {});
}

RDMACORO_COLD void speculation_receiver::owed_sent(std::uint32_t id, std::uint8_t message) noexcept {
    slot& s = at(id);
    if (message == owes_revoke && context_.link_capabilities().revokes_at_once) {
        // Sent first: a sender that is refused the memory finds the reason behind it.
        s.regions.clear();
        if (s.request != nullptr) owe(id, owes_end);
    } else if (message == owes_end) {
        if (receive_request* r = std::exchange(s.request, nullptr))
            context_.connection().fail_fill(*r, make_error_code(errc::canceled));
    }
}

}  // namespace rdmacoro::detail
