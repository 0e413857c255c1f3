// The receiving half of staged_get: gets messages from the sender's blocks when their receives are there.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_transfer.hpp>
#include <rdmacoro/protocol/detail/refusal_timer.hpp>
#include <rdmacoro/protocol/detail/staged_wire.hpp>
#include <rdmacoro/protocol/detail/stream_slots.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// States of a message:
///
///   kept -> (matched) getting -> over      straight to its place, or to a block and copied from there
///   kept -> (leaving) getting -> over      nobody wants it yet: it is kept whole from then on
///   getting -> refused                     the peer named memory that it has not opened, or the link is about to end
///
/// When it is over `received` is said.
template <class Listed, std::size_t Limit, class Context>
class staged_receiver {
public:
    explicit staged_receiver(Context& context) noexcept : context_(context), refusal_(*this) {}
    staged_receiver(const staged_receiver&) = delete;
    staged_receiver& operator=(const staged_receiver&) = delete;

    // ---- what the sender says

    delivery requested(const wire_header& h, std::span<const std::byte> payload) noexcept {
        staged_request_body body;
        if (h.flags != 0 || !body.load(payload, Limit)) return context_.violation();
        if (!slots_.reach(body.block)) {
            context_.close(make_error_code(errc::no_resources));
            return delivery::taken;
        }
        slot& s = slots_[body.block];
        if (s.now != state::none || s.owed) return context_.violation();
        const std::uint32_t cost = staged_cost(body.length, peer_leaves_, context_.credits().granted());
        receive_request* r = context_.match(h.tag);
        if (r == nullptr && context_.better_later()) return delivery::later;
        s.total = body.length;
        s.tag = h.tag;
        s.gets.there.count = 0;
        s.gets.there.add({body.address, staged_bytes(s.total), body.key});
        s.gets.owner = this;
        s.gets.name = body.block;
        if (r != nullptr) {
            if (context_.pass(cost)) {
                meet(body.block, *r);
            } else {
                r->finish(make_error_code(errc::protocol_violation));
            }
            return delivery::taken;
        }
        unexpected_message* m = context_.template keep<Listed>(h.tag, s.total, 0, cost);
        if (m == nullptr) return delivery::taken;
        m->stream = body.block;
        m->complete = false;
        s.now = state::kept;
        s.message = m;
        context_.announce(*m);
        if (peer_leaves_) fetch(body.block);
        return delivery::taken;
    }

    delivery leaving(const wire_header& h, std::span<const std::byte> payload) noexcept {
        if (h.tag != 0 || h.flags != 0 || !payload.empty() || std::exchange(peer_leaves_, true))
            return context_.violation();
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            if (slots_[id].now == state::kept) fetch(id);
        }
        return delivery::taken;
    }

    void matched(unexpected_message& m, receive_request& r) noexcept {
        const std::uint32_t id = m.stream;
        slot& s = slots_[id];
        s.message = nullptr;
        context_.free(m);
        if (s.now == state::kept) {
            meet(id, r);
        } else if (context_.begin_fill(r, s.total)) {
            s.request = &r;  // it is being got already
        }
    }

    /// False: it ends later.
    [[nodiscard]] bool forget(receive_request& r) noexcept {
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            slot& s = slots_[id];
            if (s.request != &r) continue;
            if (s.withdrawn) return false;  // canceled before
            if (s.now == state::getting && s.block == nullptr) {
                if (context_.link_capabilities().revokes_at_once) {
                    s.gets.revoke(context_.link());
                } else {
                    s.gets.stop();
                    if (s.gets.busy()) {
                        s.withdrawn = true;
                        return false;
                    }
                }
                s.request = nullptr;
                over(id);
                return true;
            }
            s.request = nullptr;  // what is being got goes to a block of ours, and is dropped there
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
            if (unexpected_message* m = std::exchange(s.message, nullptr)) context_.withdraw(*m);
            if (receive_request* r = std::exchange(s.request, nullptr)) context_.fail_fill(*r, reason);
            if (s.block != nullptr) blocks_.give(std::exchange(s.block, nullptr));
            s.stalled = s.withdrawn = false;
            s.owed = 0;
            s.now = state::none;
        }
        blocks_.trim();
    }

    /// The peer's memory was refused, and the link has not ended since.
    void refusal_expired() noexcept {
        if (refusal_.overdue(slots_, [](const slot& s) noexcept { return s.now == state::refused; }))
            static_cast<void>(context_.violation());
    }

private:
    enum class state : std::uint8_t { none, kept, getting, refused };
    struct slot {
        receive_request* request = nullptr;     // nullptr while getting: nobody wants it any more, or yet
        unexpected_message* message = nullptr;  // while nobody wants it yet
        std::byte* block = nullptr;  // ours, that it is being got to; nullptr: straight to its place
        std::size_t total = 0;
        tag_type tag = 0;
        state now = state::none;
        std::uint8_t owed = 0;  ///< whether `received` could not be said yet
        bool stalled = false;
        bool withdrawn = false;  ///< canceled, while a get to its place is under way that can't be stopped
        std::uint32_t next_free = 0;
        time_point refused_until{};
        piecewise_transfer<std::byte> gets;
    };

    void meet(std::uint32_t id, receive_request& r) noexcept {
        slot& s = slots_[id];
        if (!context_.begin_fill(r, s.total)) {
            over(id);
        } else if (s.total == 0) {
            context_.end_fill(r, s.tag, 0);
            over(id);
        } else if (const mutable_buffers into = context_.destination(r, s.total); gettable(into, s.total)) {
            s.request = &r;
            get(id, into, s.total);
        } else if (begin_block(s)) {
            s.request = &r;
            get(id, block_of(s), staged_bytes(s.total));
        } else {
            context_.fail_fill(r, make_error_code(errc::no_resources));
            over(id);
        }
    }

    /// The sender leaves: what nobody wants yet is kept here, whole.
    void fetch(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        if (s.total == 0) {
            if (keep_whole(s)) over(id);
        } else if (begin_block(s)) {
            get(id, block_of(s), staged_bytes(s.total));
        } else {
            context_.close(make_error_code(errc::no_resources));
        }
    }

    /// Whether it can be got straight to its place, without touching memory behind its end.
    [[nodiscard]] bool gettable(const mutable_buffers& into, std::size_t bytes) noexcept {
        return into.contiguous() && meets_alignment(into, bytes, context_.link_capabilities().get_alignment);
    }
    [[nodiscard]] bool begin_block(slot& s) noexcept {
        s.block = blocks_.take();
        return s.block != nullptr;
    }
    [[nodiscard]] mutable_buffers block_of(slot& s) noexcept {
        return std::span<std::byte>(s.block, staged_bytes(s.total));
    }

    void get(std::uint32_t id, const mutable_buffers& into, std::size_t bytes) noexcept {
        slot& s = slots_[id];
        s.now = state::getting;
        s.gets.begin(into, 0, bytes, [](piecewise_transfer<std::byte>& gets) noexcept {
            static_cast<staged_receiver*>(gets.owner)->go_on(gets.name);
        });
        go_on(id);
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

    void got(std::uint32_t id, std::error_code outcome) noexcept {
        slot& s = slots_[id];
        if (outcome && !is_refusal(outcome)) {
            context_.close(outcome == errc::closed ? context_.why_failed() : outcome);
            return;
        }
        if (std::exchange(s.withdrawn, false))
            context_.fail_fill(*std::exchange(s.request, nullptr), make_error_code(errc::canceled));
        if (outcome) {
            s.now = state::refused;
            s.refused_until = refusal_.start(context_.box().owner());
            return;
        }
        if (receive_request* r = std::exchange(s.request, nullptr)) {
            if (s.block != nullptr) context_.fill(*r, 0, {s.block, s.total});
            context_.end_fill(*r, s.tag, s.total);
        } else if (s.message != nullptr && !keep_whole(s)) {
            return;
        }
        over(id);
    }

    /// False: the link is down.
    [[nodiscard]] bool keep_whole(slot& s) noexcept {
        const std::span<const std::byte> payload(s.block, s.total);
        if (context_.complete(*s.message, payload)) {
            s.message = nullptr;
            return true;
        }
        context_.close(make_error_code(errc::no_resources));
        return false;
    }

    /// The sender's block is not needed any more.
    void over(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        if (s.block != nullptr) blocks_.give(std::exchange(s.block, nullptr));
        s.stalled = false;
        s.now = state::none;
        s.owed = 1;
        say(id);
    }
    void say(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        if (context_.template post_copied<Listed>(staged_received, 0, id, {}) == post_result::done) {
            s.owed = 0;
        } else if (slots_.remember(id)) {
            context_.under_way();  // no goodbye before it
        }
    }

    Context& context_;
    slab_pool blocks_{Limit, 1, most_staged};
    stream_slots<slot> slots_;
    refusal_timer<staged_receiver> refusal_;
    bool peer_leaves_ = false;
};

}  // namespace rdmacoro::detail
