// The receiving half of speculation: announces the buffers of posted receives, and takes announcements back.
#pragma once

#include <rdmacoro/protocol/detail/speculation_window.hpp>
#include <rdmacoro/protocol/detail/speculation_wire.hpp>
#include <rdmacoro/protocol/detail/stream_slots.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <array>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// States of an announcement, as the receiver sees it:
///
///   announced -> (its message comes otherwise) free
///   announced -> (claim) claimed -> (finish) free
///   announced -> withdrawing -> (withdrawn) free, or (claim) claimed
///   claimed -> revoking -> (finish) free
///
/// A number is free again when, besides, no answer to `withdraw` is awaited.
template <class Listed, unsigned FirstKind, class Context>
class speculation_receiver {
public:
    explicit speculation_receiver(Context& context) noexcept : context_(context) {}
    speculation_receiver(const speculation_receiver&) = delete;
    speculation_receiver& operator=(const speculation_receiver&) = delete;

    /// A receive was posted and its message has not come: announces it, if that can be told to the sender in a way that it
    /// can't misunderstand.
    void posted(receive_request& r) noexcept {
        if (!r.wanted_.exact() || r.source_ == any_source || r.is_lent() || r.into_.empty()) return;
        if (!context_.speculates_on(r.into_.size()) || !context_.can_send()) return;
        if (!window_.on()) {
            r.announcement_ = watched;
            return;
        }
        if (slots_.exhausted(most_announcements) || withdrawing(r.wanted_.tag)) return;
        const auto ahead = context_.box().matching().ahead_of(r);
        if (!ahead) return;
        const std::uint32_t id = slots_.take();
        if (id == slots_.none) return;
        slot& s = slots_[id];
        announcement_body body;
        body.number = id;
        body.ahead = *ahead;
        body.seen = context_.messages_seen();
        std::array<std::byte, announcement_body::most_bytes> raw;
        if (!expose(r, s, body) ||
            context_.template post_copied<Listed>(FirstKind + speculation_announce, 0, r.wanted_.tag,
                                                  body.store(raw)) != post_result::done) {
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

    /// A message that was not put into it meets this receive. `rendezvous`: it could have been.
    void superseded(receive_request& r, bool rendezvous) noexcept {
        const std::uint16_t id = std::exchange(r.announcement_, receive_request::not_announced);
        if (id == watched) {
            if (window_.watched(rendezvous)) ++context_.counts().speculation_resumed;
            return;
        }
        slot& s = slots_[id];
        ++(rendezvous ? context_.counts().announcements_crossed
                      : context_.counts().announcements_mispredicted);
        judge(false);
        // The sender began this message without it, so it never uses it: it was dropped there, or will be.
        s.request = nullptr;
        s.regions.clear();
        if (s.now == state::announced) free(id);
    }

    /// A posted receive is canceled. False: it ends when its buffer, and those announced behind it, are taken back.
    [[nodiscard]] bool cancel(receive_request& r) noexcept {
        if (!r.wanted_.exact()) return true;
        // Receives with this tag that were posted later count on this one to take a message before them.
        bool wait = false;
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            slot& s = slots_[id];
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

    /// False: its memory is not free yet.
    [[nodiscard]] bool forget(receive_request& r) noexcept {
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            slot& s = slots_[id];
            if (s.request != &r || (s.now != state::claimed && s.now != state::revoking)) continue;
            if (s.now == state::revoking) return false;
            s.now = state::revoking;
            s.request = nullptr;
            owe(id, owes_revoke);
            if ((s.owed & owes_revoke) == 0 && context_.link_capabilities().revokes_at_once) return true;
            s.request = &r;
            return false;
        }
        return true;
    }

    // ---- what the sender says

    delivery claimed(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || payload.size() != 8 || s->request == nullptr ||
            (s->now != state::announced && s->now != state::withdrawing))
            return context_.violation();
        const auto bytes = load_number<std::uint64_t>(payload.data());
        receive_request& r = *s->request;
        if (bytes == 0 || bytes > r.into_.size()) return context_.violation();
        context_.box().matching().withdraw(r);
        context_.message_seen();
        r.announcement_ = receive_request::not_announced;
        s->now = state::claimed;
        s->bytes = static_cast<std::size_t>(bytes);
        static_cast<void>(context_.begin_fill(r, s->bytes));  // it fits
        ++context_.counts().announcements_met;
        judge(true);
        if (r.canceling_ && forget(r)) context_.fail_fill(r, make_error_code(errc::canceled));
        // Now, and not with the answer to its withdrawal: announcements made meanwhile would count on them.
        if (!withdrawing(s->tag)) end_canceled(s->tag);
        return delivery::taken;
    }

    delivery finished(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || !payload.empty() || h.flags > finish_canceled) return context_.violation();
        if (s->now != state::claimed && s->now != state::revoking) return context_.violation();
        if (h.flags == finish_revoked && s->now != state::revoking) return context_.violation();
        const bool revoked = s->now == state::revoking;
        s->regions.clear();
        s->owed = static_cast<std::uint8_t>(s->owed & ~owes_revoke);
        receive_request* r = std::exchange(s->request, nullptr);
        free(static_cast<std::uint32_t>(h.tag));
        if (r == nullptr) return delivery::taken;
        if (h.flags == finish_done) {
            context_.end_fill(*r, s->tag, s->bytes);
        } else {
            context_.fail_fill(*r, make_error_code(revoked ? errc::canceled : errc::peer_canceled));
        }
        return delivery::taken;
    }

    delivery withdrawn(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || !payload.empty() || !s->awaits_answer || (s->owed & owes_withdraw) != 0)
            return context_.violation();
        s->awaits_answer = false;
        const tag_type tag = s->tag;
        if (s->now == state::withdrawing) {
            if (receive_request* r = std::exchange(s->request, nullptr)) {  // no message met it meanwhile
                r->announcement_ = receive_request::not_announced;
                ++context_.counts().announcements_withdrawn;
            }
            s->regions.clear();
            s->now = state::announced;  // as far as `free` is concerned
            free(static_cast<std::uint32_t>(h.tag));
        } else if (s->now == state::free) {
            slots_.give(static_cast<std::uint32_t>(h.tag));
        }
        if (!withdrawing(tag)) end_canceled(tag);
        return delivery::taken;
    }

    void writable() noexcept {
        slots_.say_all([&](std::uint32_t id) noexcept {
            say(id);
            context_.settled();
        });
    }

    /// The peer will send nothing more: receives that wait for it end.
    void forget_announced() noexcept {
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            slot& s = slots_[id];
            if (s.now != state::announced && s.now != state::withdrawing) continue;
            if (s.request != nullptr) s.request->announcement_ = receive_request::not_announced;
            s.request = nullptr;
            s.regions.clear();
            if ((s.owed & owes_withdraw) != 0) s.awaits_answer = false;  // never said
            s.owed = 0;
            free(id);
        }
    }

    void fail(std::error_code reason) noexcept {
        forget_announced();
        slots_.forget_unsaid();
        for (slot& s : slots_) {
            if (receive_request* r = std::exchange(s.request, nullptr)) context_.fail_fill(*r, reason);
            s.regions.clear();
            s.owed = 0;
            s.now = state::free;
        }
    }

private:
    static constexpr std::uint16_t watched = receive_request::watched;

    enum class state : std::uint8_t { free, announced, withdrawing, claimed, revoking };
    enum owed_bits : std::uint8_t { owes_withdraw = 1, owes_revoke = 2 };

    struct slot {
        receive_request* request = nullptr;
        tag_type tag = 0;
        std::size_t bytes = 0;  ///< of the message that claimed it
        std::uint32_t next_free = 0;
        state now = state::free;
        std::uint8_t owed = 0;
        bool awaits_answer = false;
        std::vector<region> regions;
    };

    [[nodiscard]] slot* slot_of(const wire_header& h) noexcept {
        return h.tag < slots_.size() ? &slots_[static_cast<std::uint32_t>(h.tag)] : nullptr;
    }
    void free(std::uint32_t id) noexcept {
        slots_[id].now = state::free;
        if (!slots_[id].awaits_answer) slots_.give(id);
    }
    [[nodiscard]] bool withdrawing(tag_type tag) noexcept {
        for (const slot& s : slots_) {
            if (s.now == state::withdrawing && s.tag == tag) return true;
        }
        return false;
    }
    void judge(bool used) noexcept {
        if (window_.announced(used)) ++context_.counts().speculation_stopped;
    }

    [[nodiscard]] bool expose(receive_request& r, slot& s, announcement_body& body) noexcept try {
        if (r.into_.pieces() > remote_pieces::most) return false;
        s.regions.reserve(r.into_.pieces());
        for (std::size_t i = 0; i < r.into_.pieces(); ++i) {
            const std::span<std::byte> piece = r.into_[i];
            if (piece.empty()) continue;
            region open = context_.expose(piece, access_rights::remote_write);
            if (!open) return false;
            body.destination.add(open.remote());
            s.regions.push_back(std::move(open));
        }
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }

    /// Receives with this tag whose cancellation waited for announcements.
    void end_canceled(tag_type tag) noexcept {
        context_.box().matching().each_posted(context_.source(), tag, [&](receive_request& r) noexcept {
            if (!r.canceling_) return;
            context_.box().matching().withdraw(r);
            r.finish(make_error_code(errc::canceled));
        });
    }

    void owe(std::uint32_t id, std::uint8_t what) noexcept {
        slots_[id].owed = static_cast<std::uint8_t>(slots_[id].owed | what);
        say(id);
    }
    void say(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        if ((s.owed & owes_withdraw) != 0) {
            if (!said(speculation_withdraw, id)) return;
            s.owed = static_cast<std::uint8_t>(s.owed & ~owes_withdraw);
        }
        if ((s.owed & owes_revoke) != 0) {
            if (!said(speculation_revoke, id)) return;
            s.owed = static_cast<std::uint8_t>(s.owed & ~owes_revoke);
            // Said first: a sender that is refused the memory finds the reason behind it.
            if (context_.link_capabilities().revokes_at_once) {
                s.regions.clear();
                if (receive_request* r = std::exchange(s.request, nullptr))
                    context_.fail_fill(*r, make_error_code(errc::canceled));
            }
        }
    }
    [[nodiscard]] bool said(unsigned kind, std::uint32_t id) noexcept {
        if (context_.template post_copied<Listed>(FirstKind + kind, 0, id, {}) == post_result::done)
            return true;
        if (slots_.remember(id)) context_.under_way();  // no goodbye before it
        return false;
    }

    Context& context_;
    stream_slots<slot> slots_;
    speculation_window window_;
};

}  // namespace rdmacoro::detail
