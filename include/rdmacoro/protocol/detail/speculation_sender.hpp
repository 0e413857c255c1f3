// The sending half of speculation: keeps what the receiver announced, and puts at once when a message meets it.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_transfer.hpp>
#include <rdmacoro/protocol/detail/refusal_timer.hpp>
#include <rdmacoro/protocol/detail/speculation_wire.hpp>
#include <rdmacoro/protocol/detail/stream_slots.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// States of an announcement, as its sender sees it:
///
///   offered -> (its message begins otherwise) free
///   offered -> claimed -> saying -> free
///   claimed -> refused -> (revoke) saying -> free      the buffer is not there any more
template <class Listed, unsigned FirstKind, class Context>
class speculation_sender {
public:
    explicit speculation_sender(Context& context) noexcept : context_(context), refusal_(*this) {}
    speculation_sender(const speculation_sender&) = delete;
    speculation_sender& operator=(const speculation_sender&) = delete;

    /// Every message of this side, in order, when it is posted.
    void begun(tag_type tag) noexcept {
        tags_[static_cast<std::size_t>(begun_++ % remembered_sends)] = tag;
        if (offered_ != 0) [[unlikely]]
            count_down(tag);
    }

    /// Claims the buffer that was announced for this message, if there is one that it fits. `wait_room`: there is, but the
    /// claim found no room. Nothing: there is none.
    [[nodiscard]] bool start(send_request& r, start_result& answer) noexcept {
        const std::uint32_t id = announced_for(r.tag_);
        if (id == none || r.from_.empty() || r.from_.size() > slots_[id].capacity) return false;
        std::array<std::byte, 8> raw;
        store_number(raw.data(), std::uint64_t{r.from_.size()});
        switch (context_.template post_copied<Listed>(FirstKind + speculation_claim, 0, id, raw)) {
            case post_result::done: break;
            case post_result::failed:
                r.finish(context_.why_failed());
                answer = start_result::begun;
                return true;
            default: answer = start_result::wait_room; return true;
        }
        slot& s = slots_[id];
        offered_ &= ~bit(id);
        s.now = state::claimed;
        s.revocable = true;
        s.request = &r;
        context_.message_begun(r.tag_);
        ++context_.counts().announcements_used;
        ++(context_.counts().*Listed::sent_counter);
        context_.under_way();
        r.stream_ = claimed_stream | id;
        s.puts.owner = this;
        s.puts.name = id;
        s.puts.begin(r.from_, 0, r.from_.size(), [](piecewise_transfer<const std::byte>& puts) noexcept {
            static_cast<speculation_sender*>(puts.owner)->go_on(puts.name);
        });
        go_on(id);
        answer = start_result::begun;
        return true;
    }

    /// Whether this send claimed a buffer.
    [[nodiscard]] static bool claimed(const send_request& r) noexcept {
        return (r.stream_ & claimed_stream) != 0;
    }
    /// Whether looking for announcements now may spare a message its request.
    [[nodiscard]] bool may_use(tag_type tag) noexcept { return announced_for(tag) != none; }

    void cancel(send_request& r) noexcept {
        const std::uint32_t id = r.stream_ & ~claimed_stream;
        slot& s = slots_[id];
        if (s.now != state::claimed && s.now != state::refused) return;
        if (s.now == state::claimed) {
            if (!context_.link_capabilities().revokes_at_once) return;  // ends soon, with its value
            s.puts.revoke(context_.link());
        }
        over(id, finish_canceled);
    }

    // ---- what the receiver says

    delivery announced(const wire_header& h, std::span<const std::byte> payload) noexcept {
        announcement_body body;
        if (!body.load(payload) || body.seen > begun_ || body.seen < seen_) return context_.violation();
        if (!slots_.reach(body.number)) {
            context_.close(make_error_code(errc::no_resources));
            return delivery::taken;
        }
        slot& s = slots_[body.number];
        if (s.now != state::free || s.owed != 0) return context_.violation();
        seen_ = body.seen;
        s.withdrawable = true;
        s.revocable = false;
        if (begun_ - body.seen > remembered_sends) return delivery::taken;  // too late for its message
        std::uint32_t passed = 0;
        for (std::uint64_t i = body.seen; i < begun_; ++i) {
            if (tags_[static_cast<std::size_t>(i % remembered_sends)] == h.tag) ++passed;
        }
        if (passed > body.ahead) return delivery::taken;  // it crossed its message
        s.now = state::offered;
        s.tag = h.tag;
        s.ahead = body.ahead - passed;
        s.capacity = body.destination.bytes();
        s.puts.there = body.destination;
        offered_ |= bit(body.number);
        return delivery::taken;
    }

    delivery withdrawn(const wire_header& h, std::span<const std::byte> payload) noexcept {
        if (h.tag >= most_announcements || !payload.empty()) return context_.violation();
        const auto id = static_cast<std::uint32_t>(h.tag);
        if (id >= slots_.size()) return context_.violation();
        slot& s = slots_[id];
        if (!std::exchange(s.withdrawable, false)) return context_.violation();
        if (s.now == state::offered) drop(id);
        owe(id, owes_withdrawn);
        return delivery::taken;
    }

    delivery revoked(const wire_header& h, std::span<const std::byte> payload) noexcept {
        if (h.tag >= slots_.size() || !payload.empty()) return context_.violation();
        const auto id = static_cast<std::uint32_t>(h.tag);
        slot& s = slots_[id];
        if (!std::exchange(s.revocable, false)) return context_.violation();
        switch (s.now) {
            case state::claimed:
                s.revoked = true;
                if (!context_.link_capabilities().revokes_at_once) return delivery::taken;  // to its end
                s.puts.revoke(context_.link());
                over(id, finish_revoked);
                return delivery::taken;
            case state::refused: over(id, finish_revoked); return delivery::taken;
            default: return delivery::taken;  // it crossed `finish`
        }
    }

    void writable() noexcept {
        slots_.say_all([&](std::uint32_t id) noexcept {
            say(id);
            context_.settled();
        });
        for (slot& s : slots_) {
            if (s.stalled) go_on(s.puts.name);
        }
    }

    /// The peer will receive nothing more: what it announced is void.
    void forget_offers() noexcept {
        while (offered_ != 0) drop(static_cast<std::uint32_t>(std::countr_zero(offered_)));
    }

    void fail(std::error_code reason) noexcept {
        refusal_.stop();
        forget_offers();
        slots_.forget_unsaid();
        for (slot& s : slots_) {
            s.puts.forget();
            if (send_request* r = std::exchange(s.request, nullptr)) context_.finish_send(*r, reason);
            s.owed = 0;
            s.stalled = s.revoked = s.withdrawable = s.revocable = false;
            s.now = state::free;
        }
    }

    /// The peer had time to say why its memory was refused.
    void refusal_expired() noexcept {
        if (refusal_.overdue(slots_, [](const slot& s) noexcept { return s.now == state::refused; }))
            static_cast<void>(context_.violation());
    }

private:
    static constexpr std::uint32_t none = 0xffffffff;
    static constexpr std::uint32_t claimed_stream = 0x80000000;

    enum class state : std::uint8_t { free, offered, claimed, refused, saying };
    enum owed_bits : std::uint8_t { owes_finish = 1, owes_withdrawn = 2 };

    struct slot {
        send_request* request = nullptr;
        tag_type tag = 0;
        std::uint64_t capacity = 0;
        std::uint32_t ahead = 0;  ///< messages with the tag that come before its own
        std::uint32_t next_free = 0;
        state now = state::free;
        std::uint8_t owed = 0;
        std::uint8_t finish_flags = 0;
        bool stalled = false;
        bool revoked = false;
        bool withdrawable = false;  ///< announced, and not withdrawn yet, whatever has become of it
        bool revocable = false;     ///< claimed, and neither revoked nor announced anew
        time_point refused_until{};
        piecewise_transfer<const std::byte> puts;
    };

    [[nodiscard]] static std::uint64_t bit(std::uint32_t id) noexcept { return std::uint64_t{1} << id; }
    static_assert(most_announcements <= 64);

    template <class Visit>
    void each_offer(Visit visit) noexcept {
        for (std::uint64_t left = offered_; left != 0; left &= left - 1)
            visit(static_cast<std::uint32_t>(std::countr_zero(left)));
    }
    [[nodiscard]] std::uint32_t announced_for(tag_type tag) noexcept {
        std::uint32_t found = none;
        each_offer([&](std::uint32_t id) noexcept {
            if (slots_[id].tag == tag && slots_[id].ahead == 0) found = id;
        });
        return found;
    }
    [[gnu::noinline]] void count_down(tag_type tag) noexcept {
        each_offer([&](std::uint32_t id) noexcept {
            slot& s = slots_[id];
            if (s.tag != tag) return;
            if (s.ahead == 0) {
                drop(id);  // its message went another way
            } else {
                --s.ahead;
            }
        });
    }
    void drop(std::uint32_t id) noexcept {
        offered_ &= ~bit(id);
        slots_[id].now = state::free;
    }

    void go_on(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        s.stalled = false;
        if (s.now != state::claimed) return;
        using progress = typename piecewise_transfer<const std::byte>::state;
        switch (s.puts.pump(context_.link())) {
            case progress::stalled: s.stalled = true; return;
            case progress::moving: return;
            case progress::over: break;
        }
        const std::error_code outcome = s.puts.outcome();
        if (!outcome) {
            over(id, finish_done);
        } else if (!is_refusal(outcome)) {
            context_.close(outcome);
        } else if (s.revoked) {
            over(id, finish_revoked);
        } else {
            s.now = state::refused;
            s.refused_until = refusal_.start(context_.box().owner());
        }
    }

    /// Nothing of this send is touched any more; it ends when the receiver was told, so that no goodbye overtakes that.
    void over(std::uint32_t id, std::uint8_t flags) noexcept {
        slot& s = slots_[id];
        s.now = state::saying;
        s.finish_flags = flags;
        s.stalled = s.revoked = false;
        owe(id, owes_finish);
    }

    void owe(std::uint32_t id, std::uint8_t what) noexcept {
        slots_[id].owed = static_cast<std::uint8_t>(slots_[id].owed | what);
        say(id);
    }
    void say(std::uint32_t id) noexcept {
        slot& s = slots_[id];
        if ((s.owed & owes_withdrawn) != 0) {
            if (!said(speculation_withdrawn, 0, id)) return;
            s.owed = static_cast<std::uint8_t>(s.owed & ~owes_withdrawn);
        }
        if ((s.owed & owes_finish) != 0) {
            if (!said(speculation_finish, s.finish_flags, id)) return;
            s.owed = static_cast<std::uint8_t>(s.owed & ~owes_finish);
            s.now = state::free;
            send_request* r = std::exchange(s.request, nullptr);
            context_.finish_send(*r, s.finish_flags == finish_canceled ? make_error_code(errc::canceled)
                                                                       : std::error_code{});
        }
    }
    [[nodiscard]] bool said(unsigned kind, std::uint8_t flags, std::uint32_t id) noexcept {
        if (context_.template post_copied<Listed>(FirstKind + kind, flags, id, {}) == post_result::done)
            return true;
        if (slots_.remember(id)) context_.under_way();  // no goodbye before it
        return false;
    }

    Context& context_;
    stream_slots<slot> slots_;
    std::uint64_t offered_ = 0;  // announcements that wait for their message
    std::uint64_t begun_ = 0;    // messages of this side
    std::uint64_t seen_ = 0;     // of those, how many the receiver had seen when it last announced
    std::array<tag_type, remembered_sends> tags_{};
    refusal_timer<speculation_sender> refusal_;
};

}  // namespace rdmacoro::detail
