// The receiving half of a rendezvous: gets what the sender lets it get, or says where to put it.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_sender.hpp>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// States of a message:
///
///   kept -> (matched) getting -> over                    `received` is said
///   kept -> (matched) awaiting -> (sent) over             `ready` was said, once or several times
///   getting -> refused -> (abandon) over                  the source is not there any more
///   awaiting -> withdrawn -> (sent) over                  the receive was canceled
template <class Listed, rendezvous_way Way, class Context>
class rendezvous_receiver {
public:
    explicit rendezvous_receiver(Context& context) noexcept : context_(context), refusal_(*this) {}
    rendezvous_receiver(const rendezvous_receiver&) = delete;
    rendezvous_receiver& operator=(const rendezvous_receiver&) = delete;

    // ---- what the sender says

    delivery requested(const wire_header& h, std::span<const std::byte> payload) noexcept {
        rendezvous_request_body body;
        if (h.flags > 1 || !body.load(payload)) return context_.violation();
        if (!slots_.reach(body.stream)) {
            context_.close(make_error_code(errc::no_resources));
            return delivery::taken;
        }
        slot& s = slots_[body.stream];
        if (s.now != state::none || s.owed != 0) return context_.violation();
        const std::uint32_t cost = message_cost(0);
        receive_request* r = context_.match(h.tag);
        if (r == nullptr && context_.better_later()) return delivery::later;
        s.total = static_cast<std::size_t>(body.length);
        s.tag = h.tag;
        s.position = 0;
        s.turn = h.flags;
        s.leavable = true;
        s.copy = body.copy;
        s.gets.there = body.source;
        s.gets.owner = this;
        s.gets.name = body.stream;
        if (r != nullptr) {
            if (context_.pass(cost)) {
                meet(body.stream, *r);
            } else {
                r->finish(make_error_code(errc::protocol_violation));
            }
            return delivery::taken;
        }
        unexpected_message* m = context_.template keep<Listed>(h.tag, s.total, 0, cost);
        if (m == nullptr) return delivery::taken;
        m->stream = body.stream;
        m->complete = false;
        s.now = state::kept;
        s.message = m;
        context_.announce(*m);
        return delivery::taken;
    }

    void matched(unexpected_message& m, receive_request& r) noexcept {
        const std::uint32_t id = m.stream;
        slots_[id].message = nullptr;
        context_.free(m);
        meet(id, r);
    }

    delivery sent(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || !payload.empty() || h.flags > 1) return context_.violation();
        const auto id = static_cast<std::uint32_t>(h.tag);
        if (s->now == state::awaiting) {
            if (h.flags == 1 || (s->owed & owes_ready) != 0) return context_.violation();
            s->regions.clear();
            s->position += s->round;
            if (s->position < s->total) {
                say_where(id);
            } else {
                s->now = state::none;
                s->leavable = false;
                context_.end_fill(*std::exchange(s->request, nullptr), s->tag, s->total);
            }
            return delivery::taken;
        }
        if (s->now != state::withdrawn) return context_.violation();
        if (h.flags == 0 && s->position + s->round < s->total)
            return delivery::taken;  // it crossed `withdraw`
        s->regions.clear();
        s->owed = 0;
        s->now = state::none;
        s->leavable = false;
        if (receive_request* r = std::exchange(s->request, nullptr))
            context_.fail_fill(*r, make_error_code(errc::canceled));
        return delivery::taken;
    }

    delivery abandoned(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || !payload.empty() || !std::exchange(s->leavable, false))
            return context_.violation();
        const auto id = static_cast<std::uint32_t>(h.tag);
        switch (s->now) {
            case state::kept: context_.withdraw(*std::exchange(s->message, nullptr)); break;
            case state::getting:
                if (!stop_getting(*s)) {
                    s->abandoned = true;
                    return delivery::taken;  // until the gets are over
                }
                break;
            default: break;
        }
        let_go(id, s->now == state::withdrawn ? errc::canceled : errc::peer_canceled);
        return delivery::taken;
    }

    /// False: it ends later.
    [[nodiscard]] bool forget(receive_request& r) noexcept {
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            slot& s = slots_[id];
            if (s.request != &r) continue;
            switch (s.now) {
                case state::getting:
                    s.withdrawn = true;
                    if (!stop_getting(s)) return false;
                    break;
                case state::refused: break;
                case state::awaiting: return withdraw(id, r);
                default: return false;  // canceled before
            }
            s.request = nullptr;
            s.regions.clear();
            s.withdrawn = false;
            s.owed = 0;
            s.now = state::none;
            owe(id, owes_received);
            return true;
        }
        return true;
    }

    void writable() noexcept {
        slots_.say_all([&](std::uint32_t id) noexcept {
            say(id);
            context_.settled();
        });
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            if (slots_[id].stalled) go_on(id);
        }
    }

    void fail(std::error_code reason) noexcept {
        refusal_.stop();
        slots_.forget_unsaid();
        for (slot& s : slots_) {
            s.gets.forget();
            s.together.busy = false;
            if (s.now == state::kept) context_.withdraw(*std::exchange(s.message, nullptr));
            if (receive_request* r = std::exchange(s.request, nullptr)) context_.fail_fill(*r, reason);
            s.regions.clear();
            s.owed = 0;
            s.stalled = s.abandoned = s.withdrawn = false;
            s.now = state::none;
        }
    }

    /// The peer had time to say why its memory was refused.
    void refusal_expired() noexcept {
        if (refusal_.overdue(slots_, [](const slot& s) noexcept { return s.now == state::refused; }))
            static_cast<void>(context_.violation());
    }

private:
    enum class state : std::uint8_t {
        none,
        kept,
        getting,
        refused,  ///< the source was refused; the sender will say that it took it back
        awaiting,
        withdrawn,  ///< canceled; `sent` will come. `request` is set while the memory is not free yet
    };
    enum owed_bits : std::uint8_t { owes_ready = 1, owes_received = 2, owes_gone = 4, owes_withdraw = 8 };

    struct together_hook : completion {
        rendezvous_receiver* self;
        std::uint32_t id;
        bool busy = false;
    };
    struct slot {
        receive_request* request = nullptr;
        unexpected_message* message = nullptr;  // kept
        std::size_t total = 0;
        std::size_t position = 0;  ///< bytes that have been put
        std::size_t round = 0;     ///< bytes that `ready` asks for
        tag_type tag = 0;
        state now = state::none;
        std::uint8_t owed = 0;
        std::uint8_t ready_flags = 0;
        std::uint8_t turn = 0;  ///< the request's flag
        bool stalled = false;
        bool abandoned = false;  ///< by the sender, while gets are under way that can't be stopped
        bool withdrawn = false;  ///< by us, in the same situation
        bool leavable = false;   ///< the sender may still abandon it: its last word has not come
        time_point refused_until{};
        std::uint32_t next_free = 0;
        shared_copy_id copy = no_shared_copy;
        std::vector<region> regions;
        piecewise_transfer<std::byte> gets;
        together_hook together;
    };

    [[nodiscard]] slot* slot_of(const wire_header& h) noexcept {
        return h.tag < slots_.size() ? &slots_[static_cast<std::uint32_t>(h.tag)] : nullptr;
    }

    void meet(std::uint32_t id, receive_request& r) noexcept {
        slot& s = slots_[id];
        s.now = state::none;
        if (!context_.begin_fill(r, s.total)) {
            owe(id, owes_received);
            return;
        }
        if (s.total == 0) {
            context_.end_fill(r, s.tag, 0);
            owe(id, owes_received);
            return;
        }
        s.request = &r;
        const mutable_buffers into = context_.destination(r, s.total);
        const std::size_t alignment = context_.link_capabilities().get_alignment;
        if (s.gets.there.count == 0 || !meets_alignment(s.gets.there, alignment) ||
            !meets_alignment(into, s.total, alignment)) {
            if (s.gets.there.count != 0) ++context_.counts().switched_to_put;
            s.now = state::awaiting;
            say_where(id);
            return;
        }
        s.now = state::getting;
        if (get_together(id, into)) return;
        s.gets.begin(into, 0, s.total, [](piecewise_transfer<std::byte>& gets) noexcept {
            static_cast<rendezvous_receiver*>(gets.owner)->go_on(gets.name);
        });
        go_on(id);
    }

    /// Both sides copy at once, if they can.
    [[nodiscard]] bool get_together(std::uint32_t id, const mutable_buffers& into) noexcept {
        if constexpr (Way == rendezvous_way::together) {
            slot& s = slots_[id];
            if (s.copy == no_shared_copy || !into.contiguous() || s.gets.there.count != 1) return false;
            const std::span<std::byte> whole = into.front().first(s.total);
            s.together.self = this;
            s.together.id = id;
            s.together.busy = true;
            s.together.done = [](completion& c, std::error_code outcome) noexcept {
                auto& hook = static_cast<together_hook&>(c);
                hook.busy = false;
                hook.self->got(hook.id, outcome);
            };
            const remote_pieces::piece& p = s.gets.there.at[0];
            // Said first: the sender can begin while we copy our first piece.
            region open = context_.expose(whole, access_rights::remote_write);
            if (open) {
                s.ready_flags = 1;
                s.regions.push_back(std::move(open));
                owe(id, owes_ready);
            }
            switch (
                context_.link().copy_from_front(s.copy, {p.address, p.length, p.key}, whole, s.together)) {
                case post_result::posted: return true;
                case post_result::done:
                    s.together.busy = false;
                    got(id, {});
                    return true;
                default: break;
            }
            s.together.busy = false;
            s.regions.clear();
            s.owed = 0;
            return false;
        } else {
            static_cast<void>(id);
            static_cast<void>(into);
            return false;
        }
    }

    /// False: what is under way has to end first.
    [[nodiscard]] bool stop_getting(slot& s) noexcept {
        s.stalled = false;
        if (context_.link_capabilities().revokes_at_once) {
            if (std::exchange(s.together.busy, false)) static_cast<void>(context_.link().revoke(s.together));
            s.gets.revoke(context_.link());
            return true;
        }
        s.gets.stop();
        return !s.gets.busy() && !s.together.busy;
    }

    void go_on(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        s.stalled = false;
        if (s.now != state::getting) return;
        using progress = typename piecewise_transfer<std::byte>::state;
        switch (s.gets.pump(context_.link())) {
            case progress::stalled: s.stalled = true; return;
            case progress::moving: return;
            case progress::over: got(id, s.gets.outcome()); return;
        }
    }

    /// Nothing is being got any more.
    void got(std::uint32_t id, std::error_code outcome) noexcept {
        slot& s = slots_[id];
        if (s.abandoned || s.withdrawn) {
            const bool by_peer = std::exchange(s.abandoned, false);
            const bool by_us = std::exchange(s.withdrawn, false);
            if (by_peer) {
                let_go(id, by_us ? errc::canceled : errc::peer_canceled);
                return;
            }
            s.now = state::none;
            s.owed = 0;
            s.regions.clear();
            context_.fail_fill(*std::exchange(s.request, nullptr), make_error_code(errc::canceled));
            owe(id, owes_received);
            return;
        }
        if (outcome && is_refusal(outcome)) {
            s.now = state::refused;
            s.refused_until = refusal_.start(context_.box().owner());
        } else if (outcome) {
            context_.close(outcome == errc::closed ? context_.why_failed() : outcome);
        } else {
            s.now = state::none;
            s.regions.clear();
            s.owed = 0;
            context_.end_fill(*std::exchange(s.request, nullptr), s.tag, s.total);
            owe(id, owes_received);
        }
    }

    /// Asks for the next bytes, as many as pieces can be named at a time.
    void say_where(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        const mutable_buffers into = context_.destination(*s.request, s.total);
        s.round = 0;
        s.ready_flags = 0;
        bool refused = false;
        try {
            while (s.position + s.round < s.total && s.regions.size() < remote_pieces::most) {
                std::span<std::byte> piece = into.at_offset(s.position + s.round);
                piece = piece.first(std::min(piece.size(), s.total - s.position - s.round));
                region open = context_.expose(piece, access_rights::remote_write);
                if (!open) {
                    refused = s.round == 0;
                    break;
                }
                s.regions.push_back(std::move(open));
                s.round += piece.size();
            }
        } catch (const std::bad_alloc&) {
            refused = true;
        }
        if (refused) {
            s.regions.clear();
            context_.fail_fill(*std::exchange(s.request, nullptr), make_error_code(errc::no_resources));
            if (s.position == 0) {
                s.now = state::none;
                owe(id, owes_received);
            } else {
                s.now = state::withdrawn;
                owe(id, owes_withdraw);
            }
            return;
        }
        owe(id, owes_ready);
    }

    /// The receive was canceled while the sender may be putting. False: its memory is not free yet.
    [[nodiscard]] bool withdraw(std::uint32_t id, receive_request& r) noexcept {
        slot& s = slots_[id];
        s.now = state::withdrawn;
        if ((s.owed & owes_ready) != 0) {  // the sender never heard of it
            s.owed = 0;
            s.regions.clear();
            s.request = nullptr;
            if (s.position == 0) {
                s.now = state::none;
                owe(id, owes_received);
            } else {
                s.round = 0;
                owe(id, owes_withdraw);
            }
            return true;
        }
        s.request = nullptr;
        owe(id, owes_withdraw);
        if ((s.owed & owes_withdraw) == 0 && context_.link_capabilities().revokes_at_once) return true;
        s.request = &r;
        return false;
    }

    /// The sender has taken its memory back.
    void let_go(std::uint32_t id, errc why) noexcept {
        slot& s = slots_[id];
        s.regions.clear();
        s.now = state::none;
        s.owed = 0;
        if (receive_request* r = std::exchange(s.request, nullptr))
            context_.fail_fill(*r, make_error_code(why));
        owe(id, owes_gone);
    }

    void owe(std::uint32_t id, std::uint8_t what) noexcept {
        slots_[id].owed = static_cast<std::uint8_t>(slots_[id].owed | what);
        say(id);
    }
    void say(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        if ((s.owed & owes_ready) != 0) {
            rendezvous_ready_body body;
            body.offset = s.position;
            for (const region& r : s.regions) body.destination.add(r.remote());
            std::array<std::byte, rendezvous_ready_body::most_bytes> raw;
            if (!said(s, rendezvous_ready, s.ready_flags, id, body.store(raw), owes_ready)) return;
        }
        if ((s.owed & owes_withdraw) != 0) {
            if (!said(s, rendezvous_withdraw, s.turn, id, {}, owes_withdraw)) return;
            // Said first: a sender that is refused the memory finds the reason behind it.
            if (context_.link_capabilities().revokes_at_once) {
                s.regions.clear();
                if (receive_request* r = std::exchange(s.request, nullptr))
                    context_.fail_fill(*r, make_error_code(errc::canceled));
            }
        }
        if ((s.owed & owes_received) != 0) {
            if (!said(s, rendezvous_received, 0, id, {}, owes_received)) return;
        }
        if ((s.owed & owes_gone) != 0) static_cast<void>(said(s, rendezvous_gone, 0, id, {}, owes_gone));
    }
    [[nodiscard]] bool said(slot& s, unsigned kind, std::uint8_t flags, std::uint32_t id,
                            std::span<const std::byte> payload, std::uint8_t bit) noexcept {
        if (context_.template post_copied<Listed>(kind, flags, id, payload) != post_result::done) {
            if (slots_.remember(id)) context_.under_way();  // no goodbye before it
            return false;
        }
        s.owed = static_cast<std::uint8_t>(s.owed & ~bit);
        return true;
    }

    Context& context_;
    stream_slots<slot> slots_;
    refusal_timer<rendezvous_receiver> refusal_;
};

}  // namespace rdmacoro::detail
