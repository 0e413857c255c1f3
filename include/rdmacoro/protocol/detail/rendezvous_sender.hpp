// The sending half of a rendezvous: asks, lets the receiver get or puts where it says, and takes its memory back.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_transfer.hpp>
#include <rdmacoro/protocol/detail/refusal_timer.hpp>
#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>
#include <rdmacoro/protocol/detail/stream_slots.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// How a rendezvous begins: with the source's memory for the receiver to get, without, or for both to copy together.
enum class rendezvous_way : std::uint8_t { get, put, together };

/// `Listed` is the policy as the protocol list has it. States of a send:
///
///   requested -> (received) over           the receiver got it, or does not want it
///   requested -> (ready) putting -> over    or requested again, when the receiver asks for it in parts
///   putting -> refused -> (withdraw) over   the destination is not there any more
///   any -> leaving -> (gone) over           canceled
template <class Listed, rendezvous_way Way, class Context>
class rendezvous_sender {
public:
    explicit rendezvous_sender(Context& context) noexcept : context_(context), refusal_(*this) {}
    rendezvous_sender(const rendezvous_sender&) = delete;
    rendezvous_sender& operator=(const rendezvous_sender&) = delete;

    start_result start(send_request& r) noexcept {
        if (slots_.exhausted(most_streams)) return start_result::wait_room;
        const std::uint32_t cost = message_cost(0);
        if (!context_.credits().take(cost)) return start_result::wait_credit;
        const std::uint32_t id = slots_.take();
        if (id == slots_.none) {
            context_.credits().untake(cost);
            r.finish(errc::no_resources);
            return start_result::begun;
        }
        slot& s = slots_[id];
        rendezvous_request_body body;
        body.stream = id;
        body.length = r.from_.size();
        if constexpr (Way != rendezvous_way::put) expose(r, s, body);
        std::array<std::byte, rendezvous_request_body::most_bytes> raw;
        const post_result said =
            context_.template post_copied<Listed>(rendezvous_request, s.turn, r.tag_, body.store(raw));
        if (said != post_result::done) {
            release(s);
            slots_.give(id);
            if (said == post_result::failed) {
                r.finish(context_.why_failed());
                return start_result::begun;
            }
            context_.credits().untake(cost);
            return start_result::wait_room;
        }
        r.stream_ = id;
        r.sent_ = 0;
        s.request = &r;
        s.now = state::requested;
        ++(context_.counts().*Listed::sent_counter);
        context_.under_way();
        return start_result::begun;
    }

    void cancel(send_request& r) noexcept {
        slot& s = slots_[r.stream_];
        if (s.now != state::requested && s.now != state::putting && s.now != state::refused) return;
        if (s.now == state::putting) {
            if (!context_.link_capabilities().revokes_at_once) return;  // ends soon, with its value
            s.puts.revoke(context_.link());
        }
        s.now = state::leaving;
        owe(r.stream_, owes_abandon);
    }

    // ---- what the receiver says

    delivery ready(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        rendezvous_ready_body body;
        if (s == nullptr || s->now == state::free || !body.load(payload)) return context_.violation();
        if (s->now == state::leaving || s->now == state::left) return delivery::taken;
        if (s->now != state::requested) return context_.violation();
        if (h.flags != 0) return help(*s, h, body);
        send_request& r = *s->request;
        const std::uint64_t bytes = body.destination.bytes();
        if (s->copy != no_shared_copy && s->helping) return context_.violation();
        if (body.offset != r.sent_ || bytes == 0 || bytes > r.from_.size() - r.sent_)
            return context_.violation();
        if (Way != rendezvous_way::put && !s->regions.empty() && r.sent_ == 0)
            ++context_.counts().switched_to_put;
        s->now = state::putting;
        s->round = static_cast<std::size_t>(bytes);
        s->puts.there = body.destination;
        s->puts.owner = this;
        s->puts.name = static_cast<std::uint32_t>(h.tag);
        s->puts.begin(r.from_, r.sent_, s->round, [](piecewise_transfer<const std::byte>& puts) noexcept {
            static_cast<rendezvous_sender*>(puts.owner)->go_on(puts.name);
        });
        go_on(static_cast<std::uint32_t>(h.tag));
        return delivery::taken;
    }

    delivery received(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || !payload.empty()) return context_.violation();
        if (s->now == state::left) return delivery::taken;
        if (s->now == state::leaving) {
            s->owed = 0;  // never said: there is nothing to abandon any more
        } else if (s->now != state::requested) {
            return context_.violation();
        }
        end(static_cast<std::uint32_t>(h.tag), {});
        return delivery::taken;
    }

    delivery withdrawn(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || !payload.empty() || h.flags > 1) return context_.violation();
        if (h.flags != s->turn) return delivery::taken;  // it crossed the last `sent`
        const auto id = static_cast<std::uint32_t>(h.tag);
        switch (s->now) {
            case state::putting:
                if (s->withdrawn) return context_.violation();
                s->withdrawn = true;
                if (!context_.link_capabilities().revokes_at_once) return delivery::taken;  // to its end
                s->puts.revoke(context_.link());
                give_up(id);
                return delivery::taken;
            case state::refused:
            case state::requested: give_up(id); return delivery::taken;
            default: return delivery::taken;  // over, or canceled here
        }
    }

    delivery gone(const wire_header& h, std::span<const std::byte> payload) noexcept {
        slot* s = slot_of(h);
        if (s == nullptr || !payload.empty() || s->now != state::left) return context_.violation();
        end(static_cast<std::uint32_t>(h.tag), make_error_code(errc::canceled));
        return delivery::taken;
    }

    void writable() noexcept {
        slots_.say_all([&](std::uint32_t id) noexcept { say(id); });
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {  // sends that begin meanwhile add slots
            if (slots_[id].stalled) go_on(id);
        }
    }

    void fail(std::error_code reason) noexcept {
        refusal_.stop();
        for (slot& s : slots_) {
            s.puts.forget();
            s.helper.busy = false;
            if (send_request* r = std::exchange(s.request, nullptr)) context_.finish_send(*r, reason);
            s.owed = 0;
            s.now = state::free;
            release(s);
        }
        slots_.forget_unsaid();
    }

    /// The peer had time to say why its memory was refused.
    void refusal_expired() noexcept {
        if (refusal_.overdue(slots_, [](const slot& s) noexcept { return s.now == state::refused; }))
            static_cast<void>(context_.violation());
    }

private:
    enum class state : std::uint8_t {
        free,
        requested,
        putting,
        refused,  ///< the destination was refused; the receiver will say that it took it back
        saying,   ///< over, but `sent` is still to be said
        leaving,  ///< canceled; `abandon` is to be said
        left,     ///< it was said
    };
    enum owed_bits : std::uint8_t { owes_sent = 1, owes_abandon = 2 };

    struct helper_hook : completion {
        bool busy = false;
    };
    struct slot {
        send_request* request = nullptr;
        state now = state::free;
        std::uint8_t owed = 0;
        bool withdrawn = false;
        bool stalled = false;
        bool helping = false;  ///< the receiver's `ready` to copy together has come
        std::uint8_t sent_flags = 0;
        std::uint8_t turn = 0;  ///< changes with each message
        std::uint32_t next_free = 0;
        shared_copy_id copy = no_shared_copy;
        std::size_t round = 0;  ///< bytes that are being put
        time_point refused_until{};
        std::vector<region> regions;
        piecewise_transfer<const std::byte> puts;
        helper_hook helper;
    };

    [[nodiscard]] slot* slot_of(const wire_header& h) noexcept {
        if (h.tag >= slots_.size()) return nullptr;
        slot& s = slots_[static_cast<std::uint32_t>(h.tag)];
        return &s;
    }

    /// Lets the receiver get the source, if it can.
    void expose(send_request& r, slot& s, rendezvous_request_body& body) noexcept {
        const capabilities& link = context_.link_capabilities();
        const const_buffers& from = r.from_;
        if (from.empty() || from.pieces() > remote_pieces::most ||
            !meets_alignment(from, from.size(), link.get_alignment))
            return;
        try {
            s.regions.reserve(from.pieces());
        } catch (const std::bad_alloc&) {
            return;
        }
        for (std::size_t i = 0; i < from.pieces(); ++i) {
            const std::span<const std::byte> piece = from[i];
            if (piece.empty()) continue;
            region made = context_.expose({const_cast<std::byte*>(piece.data()), piece.size()},
                                          access_rights::remote_read);
            if (!made) {  // the receiver says where to put it instead
                s.regions.clear();
                body.source.count = 0;
                return;
            }
            body.source.add(made.remote());
            s.regions.push_back(std::move(made));
        }
        if constexpr (Way == rendezvous_way::together) {
            if (s.regions.size() == 1) body.copy = s.copy = context_.link().open_shared_copy(from.size());
        }
    }

    void release(slot& s) noexcept {
        s.regions.clear();
        if constexpr (Way == rendezvous_way::together) {
            if (std::exchange(s.helper.busy, false)) static_cast<void>(context_.link().revoke(s.helper));
            if (s.copy != no_shared_copy)
                context_.link().close_shared_copy(std::exchange(s.copy, no_shared_copy));
        }
        s.withdrawn = s.stalled = s.helping = false;
    }

    void end(std::uint32_t id, std::error_code outcome) noexcept {
        slot& s = slots_[id];
        send_request* r = std::exchange(s.request, nullptr);
        release(s);
        s.now = state::free;
        s.turn ^= 1;
        slots_.give(id);
        if (r != nullptr) context_.finish_send(*r, outcome);
        context_.room_for_sends();
    }

    /// The receiver copies the block from its front; from now on we do from its back.
    delivery help(slot& s, const wire_header& h, const rendezvous_ready_body& body) noexcept {
        if constexpr (Way == rendezvous_way::together) {
            const const_buffers& from = s.request->from_;
            if (h.flags != 1 || s.copy == no_shared_copy || s.helping || body.offset != 0 ||
                body.destination.count != 1 || body.destination.bytes() != from.size())
                return context_.violation();
            s.helping = true;
            s.helper.done = [](completion& c, std::error_code) noexcept {
                // Whether anything was refused is for the receiver to say, who sees to it that all is copied.
                static_cast<helper_hook&>(c).busy = false;
            };
            const remote_pieces::piece& p = body.destination.at[0];
            s.helper.busy = true;
            if (context_.link().copy_from_back(s.copy, from.at_offset(0), {p.address, p.length, p.key},
                                               s.helper) != post_result::posted)
                s.helper.busy = false;
            return delivery::taken;
        } else {
            static_cast<void>(s);
            static_cast<void>(h);
            static_cast<void>(body);
            return context_.violation();
        }
    }
    void go_on(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        s.stalled = false;
        if (s.now != state::putting) return;
        using progress = typename piecewise_transfer<const std::byte>::state;
        switch (s.puts.pump(context_.link())) {
            case progress::stalled: s.stalled = true; return;
            case progress::moving: return;
            case progress::over: break;
        }
        if (const std::error_code outcome = s.puts.outcome()) {
            refused(id, outcome);
        } else if (s.withdrawn) {
            give_up(id);
        } else {
            send_request& r = *s.request;
            r.sent_ += s.round;
            if (r.sent_ == r.from_.size()) {
                over(id, 0);
            } else {
                s.now = state::requested;
                s.sent_flags = 0;
                owe(id, owes_sent);
            }
        }
    }

    /// The destination is not there any more, and the receiver said so.
    void give_up(std::uint32_t id) noexcept { over(id, 1); }

    /// Nothing of this send is touched any more; the receiver is to be told.
    void over(std::uint32_t id, std::uint8_t flags) noexcept {
        slot& s = slots_[id];
        s.sent_flags = flags;
        s.now = state::saying;
        release(s);
        owe(id, owes_sent);  // a goodbye must not overtake it: the send ends when it is said
    }

    void refused(std::uint32_t id, std::error_code outcome) noexcept {
        slot& s = slots_[id];
        if (!is_refusal(outcome)) {
            context_.close(outcome == errc::closed ? context_.why_failed() : outcome);
        } else if (s.withdrawn) {
            give_up(id);
        } else {
            s.now = state::refused;
            s.refused_until = refusal_.start(context_.box().owner());
        }
    }

    void owe(std::uint32_t id, std::uint8_t what) noexcept {
        slots_[id].owed = static_cast<std::uint8_t>(slots_[id].owed | what);
        say(id);
    }
    void say(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        if ((s.owed & owes_sent) != 0) {
            if (!said(rendezvous_sent, s.sent_flags, id)) return;
            s.owed = static_cast<std::uint8_t>(s.owed & ~owes_sent);
            if (s.now == state::saying) end(id, {});
        }
        if ((s.owed & owes_abandon) != 0) {
            if (!said(rendezvous_abandon, 0, id)) return;
            s.owed = static_cast<std::uint8_t>(s.owed & ~owes_abandon);
            s.now = state::left;
            if (!context_.link_capabilities().revokes_at_once) return;  // until the receiver has let go
            // Said first: a receiver that is refused the memory finds the reason behind it.
            s.regions.clear();
            if constexpr (Way == rendezvous_way::together) {
                if (std::exchange(s.helper.busy, false)) static_cast<void>(context_.link().revoke(s.helper));
            }
            if (send_request* r = std::exchange(s.request, nullptr))
                context_.finish_send(*r, make_error_code(errc::canceled));
        }
    }
    [[nodiscard]] bool said(unsigned kind, std::uint8_t flags, std::uint32_t id) noexcept {
        if (context_.template post_copied<Listed>(kind, flags, id, {}) == post_result::done) return true;
        slots_.remember(id);
        return false;
    }

    Context& context_;
    stream_slots<slot> slots_;
    refusal_timer<rendezvous_sender> refusal_;
};

}  // namespace rdmacoro::detail
