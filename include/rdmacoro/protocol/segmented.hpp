// segmented: a long message in pieces, announced first; also a synchronous message of any length.
//
//   sender                               receiver
//     | -- announce (length, flags) -----> |   matched, or kept with room for what may come unasked
//     | -- piece -- piece -- ... --------> |   up to a quarter of the budget: what was paid for
//     | <------------------- proceed ----- |   when matched; only for longer or synchronous messages
//     | -- piece -- piece -- ... --------> |   straight to their place
//
//   given up:  | -- abandon -> |  <- gone -- |   after which the stream's number is free again
#pragma once

#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <algorithm>
#include <vector>

namespace rdmacoro {

/// Sends a message of any length as an announcement and pieces of the transport's `segment_bytes`. What may arrive before
/// a receive is posted, a quarter of the receiver's budget at most, is paid for with credit; the rest waits for the
/// receiver's word and then goes where it belongs without being kept. Pieces of several messages and other messages
/// interleave. A synchronous send ends when its message is matched.
template <class Limit = up_to_transport>
struct segmented {
    static constexpr std::string_view name = "segmented";
    static constexpr std::string_view description =
        "announced, then sent in pieces of the transport's best size";
    static constexpr std::uint8_t kinds = 5;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities&) noexcept {
        return Limit::bytes == 0 ? static_cast<std::size_t>(-1) : Limit::bytes;
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return Limit::bytes; }

    enum : unsigned { announce, piece, proceed, abandon, gone };
    /// Streams of one side at a time; more sends wait their turn.
    static constexpr std::uint32_t most_streams = 1024;

    template <class Context>
    class engine {
    public:
        explicit engine(Context& context) noexcept : context_(context) {}

        // ---- sending

        start_result start(detail::send_request& r) noexcept {
            if (free_out_ == none && out_.size() == most_streams) return start_result::wait_room;
            const std::size_t bytes = r.from_.size();
            const std::uint32_t cost = detail::message_cost(std::min(bytes, unasked_by_peer()));
            if (!context_.credits().take(cost)) return start_result::wait_credit;
            const std::uint32_t id = take_out();
            if (id == none) {
                context_.credits().untake(cost);
                r.finish(errc::no_resources);
                return start_result::begun;
            }
            std::byte raw[announcement_bytes];
            detail::store_number(raw, id);
            detail::store_number(raw + 4, std::uint32_t{r.synchronous_ ? 1u : 0u});
            detail::store_number(raw + 8, std::uint64_t{bytes});
            switch (context_.template post_copied<segmented>(announce, 0, r.tag_, std::span(raw))) {
                case post_result::done: break;
                case post_result::failed:
                    give_out(id);
                    r.finish(context_.why_failed());
                    return start_result::begun;
                default:
                    give_out(id);
                    context_.credits().untake(cost);
                    return start_result::wait_room;
            }
            ++context_.counts().segmented_sent;
            r.stream_ = id;
            r.sent_ = 0;
            r.answered_ = false;
            out_[id].request = &r;
            out_[id].state = out_state::sending;
            ++sending_;
            context_.under_way();
            pump(r);
            return start_result::begun;
        }

        void transmitted(detail::send_request& r, std::error_code outcome) noexcept {
            r.in_flight_ = false;
            if (outcome) {
                end_send(r, outcome);
                return;
            }
            r.sent_ += r.posted_bytes_;
            pump(r);
        }

        void cancel_send(detail::send_request& r) noexcept {
            if (r.in_flight_) {
                if (context_.revoke(r)) return;  // the link had to be closed, and has ended the send
                r.in_flight_ = false;
            }
            out_slot& slot = out_[r.stream_];
            slot.state = out_state::abandoning;
            slot.request = nullptr;
            --sending_;
            ++leaving_;
            say_abandon(r.stream_);
            context_.finish_send(r, make_error_code(errc::canceled));
        }

        // ---- receiving

        delivery arrived(unsigned kind, const detail::wire_header& h,
                         std::span<const std::byte> payload) noexcept {
            switch (kind) {
                case announce: return announced(h, payload);
                case piece: return piece_arrived(h, payload);
                case proceed: return proceeded(h, payload);
                case abandon: return abandoned(h, payload);
                default: return peer_gone(h, payload);
            }
        }

        delivery begin_payload(unsigned kind, const detail::wire_header& h, std::size_t bytes) noexcept {
            in_slot* slot = kind == piece ? admissible_piece(h, bytes) : nullptr;
            if (slot == nullptr) {
                context_.violation();
                return delivery::taken;
            }
            current_ = static_cast<std::uint32_t>(h.tag);
            current_left_ = bytes;
            return delivery::taken;
        }
        std::span<std::byte> payload_space() noexcept {
            in_slot& slot = in_[current_];
            if (slot.state == in_state::filling)
                return context_.space(*slot.request, slot.arrived, current_left_);
            if (slot.state == in_state::kept) return {slot.message->payload() + slot.arrived, current_left_};
            return {};
        }
        void payload_arrived(std::size_t n) noexcept {
            in_slot& slot = in_[current_];
            slot.arrived += n;
            current_left_ -= n;
            if (slot.state == in_state::kept) slot.message->stored = slot.arrived;
            if (current_left_ == 0) after_piece(current_);
        }

        void matched(detail::unexpected_message& m, detail::receive_request& r) noexcept {
            if (m.complete) {
                context_.hand_over(m, r);
                return;
            }
            const std::uint32_t id = m.stream;
            in_slot& slot = in_[id];
            slot.message = nullptr;
            slot.tag = m.tag;
            if (context_.begin_fill(r, slot.total)) {
                slot.state = in_state::filling;
                slot.request = &r;
                context_.fill(r, 0, {m.payload(), m.stored});
            } else {
                slot.state = in_state::discarding;
            }
            context_.free(m);  // gives its credit back
            if (wants_answer(slot)) answer(id);
            if (slot.arrived == slot.total) after_piece(id);
        }

        bool forget_receive(detail::receive_request& r) noexcept {
            for (in_slot& slot : in_) {
                if (slot.state != in_state::filling || slot.request != &r) continue;
                slot.state = in_state::discarding;
                slot.request = nullptr;
            }
            return true;
        }

        void writable() noexcept {
            for (std::size_t n = unsaid_.size(); n > 0; --n) {
                const std::uint32_t id = unsaid_.front();
                unsaid_.erase(unsaid_.begin());
                say_pending(id);
            }
            if (leaving_ != 0) {
                for (std::uint32_t id = 0; id < out_.size(); ++id) {
                    if (out_[id].state == out_state::abandoning) say_abandon(id);
                }
            }
            if (sending_ == 0) return;
            for (std::uint32_t id = 0; id < out_.size(); ++id) {
                detail::send_request* r = out_[id].request;
                if (out_[id].state == out_state::sending && r != nullptr && !r->in_flight_) pump(*r);
            }
        }

        void fail(std::error_code reason) noexcept {
            for (out_slot& slot : out_) {
                detail::send_request* r = std::exchange(slot.request, nullptr);
                slot.state = out_state::free;
                if (r != nullptr) context_.finish_send(*r, reason);
            }
            sending_ = leaving_ = 0;
            for (in_slot& slot : in_) {
                if (slot.state == in_state::filling) context_.fail_fill(*slot.request, reason);
                if (slot.state == in_state::kept) context_.withdraw(*slot.message);
                slot = {};
            }
            unsaid_.clear();
        }

    private:
        static constexpr std::uint32_t none = 0xffffffff;
        static constexpr std::size_t announcement_bytes = 16;

        enum class out_state : std::uint8_t { free, sending, abandoning, abandoned };
        struct out_slot {
            detail::send_request* request = nullptr;
            out_state state = out_state::free;
            std::uint32_t next_free = none;
        };
        enum class in_state : std::uint8_t { none, kept, filling, discarding };
        struct in_slot {
            detail::receive_request* request = nullptr;     // filling
            detail::unexpected_message* message = nullptr;  // kept
            std::size_t total = 0;
            std::size_t arrived = 0;
            tag_type tag = 0;
            in_state state = in_state::none;
            bool synchronous = false;
            bool answered = false;  // proceed was said, or is in `unsaid_`
            bool say_proceed = false;
            bool say_gone = false;
        };

        /// How much of a message may come before its receiver has a place for it.
        [[nodiscard]] std::size_t unasked_by_peer() noexcept {
            return detail::unasked_bytes(context_.credits().peer_budget());
        }
        [[nodiscard]] std::size_t unasked_here() noexcept {
            return detail::unasked_bytes(context_.credits().granted());
        }

        [[nodiscard]] std::uint32_t take_out() noexcept {
            if (free_out_ != none) {
                const std::uint32_t id = free_out_;
                free_out_ = out_[id].next_free;
                return id;
            }
            try {
                out_.emplace_back();
            } catch (const std::bad_alloc&) {
                return none;
            }
            return static_cast<std::uint32_t>(out_.size() - 1);
        }
        void give_out(std::uint32_t id) noexcept {
            out_[id] = {nullptr, out_state::free, free_out_};
            free_out_ = id;
        }

        /// Posts what may be posted.
        void pump(detail::send_request& r) noexcept {
            const std::size_t total = r.from_.size();
            const bool asks = r.synchronous_ || total > unasked_by_peer();
            const std::size_t allowed = r.answered_ ? total : std::min(total, unasked_by_peer());
            while (r.sent_ < allowed) {
                const const_buffers part = r.from_.slice(
                    r.sent_, std::min(context_.link_capabilities().segment_bytes, allowed - r.sent_),
                    r.from_.pieces());
                switch (context_.template post<segmented>(piece, 0, r.stream_, part, r)) {
                    case post_result::done: r.sent_ += part.size(); break;
                    case post_result::posted:
                        r.in_flight_ = true;
                        r.posted_bytes_ = part.size();
                        ++context_.counts().segments_sent;
                        return;
                    case post_result::retry: return;   // writable() comes back
                    case post_result::failed: return;  // fail() ends it
                }
                ++context_.counts().segments_sent;
            }
            if (r.sent_ == total && (!asks || r.answered_)) end_send(r, {});
        }

        void end_send(detail::send_request& r, std::error_code outcome) noexcept {
            give_out(r.stream_);
            --sending_;
            context_.finish_send(r, outcome);
            context_.room_for_sends();
        }

        void say_abandon(std::uint32_t id) noexcept {
            if (context_.template post_copied<segmented>(abandon, 0, id, {}) != post_result::done) return;
            out_[id].state = out_state::abandoned;
            --leaving_;
        }

        [[nodiscard]] delivery proceeded(const detail::wire_header& h,
                                         std::span<const std::byte> payload) noexcept {
            if (h.tag >= out_.size() || !payload.empty()) return context_.violation();
            out_slot& slot = out_[static_cast<std::size_t>(h.tag)];
            if (slot.state == out_state::free) return context_.violation();
            if (slot.state != out_state::sending) return delivery::taken;  // given up meanwhile
            detail::send_request& r = *slot.request;
            if (r.answered_ || !(r.synchronous_ || r.from_.size() > unasked_by_peer()))
                return context_.violation();
            r.answered_ = true;
            if (!r.in_flight_) pump(r);
            return delivery::taken;
        }

        [[nodiscard]] delivery peer_gone(const detail::wire_header& h,
                                         std::span<const std::byte> payload) noexcept {
            if (h.tag >= out_.size() || !payload.empty()) return context_.violation();
            const auto id = static_cast<std::uint32_t>(h.tag);
            if (out_[id].state != out_state::abandoned) return context_.violation();
            give_out(id);
            context_.room_for_sends();
            return delivery::taken;
        }

        [[nodiscard]] bool wants_answer(const in_slot& slot) noexcept {
            return !slot.answered && (slot.synchronous || slot.total > unasked_here());
        }

        [[nodiscard]] delivery announced(const detail::wire_header& h,
                                         std::span<const std::byte> payload) noexcept {
            if (payload.size() != announcement_bytes) return context_.violation();
            std::byte raw[announcement_bytes];
            std::copy(payload.begin(), payload.end(), raw);
            const auto id = detail::load_number<std::uint32_t>(raw);
            const auto flags = detail::load_number<std::uint32_t>(raw + 4);
            const auto total64 = detail::load_number<std::uint64_t>(raw + 8);
            if (id >= most_streams || flags > 1 || total64 > (std::uint64_t{1} << 62))
                return context_.violation();
            try {
                if (id >= in_.size()) in_.resize(id + 1);
                unsaid_.reserve(in_.size());
            } catch (const std::bad_alloc&) {
                context_.close(make_error_code(errc::no_resources));
                return delivery::taken;
            }
            in_slot& slot = in_[id];
            if (slot.state != in_state::none || slot.say_gone || slot.say_proceed)
                return context_.violation();
            const auto total = static_cast<std::size_t>(total64);
            const std::size_t unasked = std::min(total, unasked_here());
            const std::uint32_t cost = detail::message_cost(unasked);
            detail::receive_request* r = context_.match(h.tag);
            if (r == nullptr && context_.better_later()) return delivery::later;
            slot = {};
            slot.total = total;
            slot.tag = h.tag;
            slot.synchronous = flags == 1;
            if (r != nullptr) {
                if (!context_.pass(cost)) {
                    r->finish(make_error_code(errc::protocol_violation));
                    return delivery::taken;
                }
                if (context_.begin_fill(*r, total)) {
                    slot.state = in_state::filling;
                    slot.request = r;
                } else {
                    slot.state = in_state::discarding;
                }
                if (wants_answer(slot)) answer(id);
            } else {
                detail::unexpected_message* m =
                    context_.template keep<segmented>(h.tag, total, unasked, cost);
                if (m == nullptr) return delivery::taken;
                m->stored = 0;
                m->stream = id;
                m->complete = false;
                slot.state = in_state::kept;
                slot.message = m;
                context_.announce(*m);
            }
            if (total == 0) after_piece(id);
            return delivery::taken;
        }

        /// The stream that such a piece belongs to; nullptr when there can be none.
        [[nodiscard]] in_slot* admissible_piece(const detail::wire_header& h, std::size_t bytes) noexcept {
            if (h.tag >= in_.size() || bytes == 0) return nullptr;
            in_slot& slot = in_[static_cast<std::size_t>(h.tag)];
            if (slot.state == in_state::none) return nullptr;
            const std::size_t allowed =
                slot.state == in_state::kept ? std::min(slot.total, unasked_here()) : slot.total;
            return bytes <= allowed - slot.arrived ? &slot : nullptr;
        }

        [[nodiscard]] delivery piece_arrived(const detail::wire_header& h,
                                             std::span<const std::byte> payload) noexcept {
            in_slot* slot = admissible_piece(h, payload.size());
            if (slot == nullptr) return context_.violation();
            if (slot->state == in_state::filling) {
                context_.fill(*slot->request, slot->arrived, payload);
            } else if (slot->state == in_state::kept) {
                std::copy(payload.begin(), payload.end(), slot->message->payload() + slot->arrived);
                slot->message->stored += payload.size();
                context_.count_copy(payload.size());
            }
            slot->arrived += payload.size();
            after_piece(static_cast<std::uint32_t>(h.tag));
            return delivery::taken;
        }

        /// Something came for this stream: it may be complete.
        void after_piece(std::uint32_t id) noexcept {
            in_slot& slot = in_[id];
            if (slot.arrived != slot.total) return;
            if (slot.state == in_state::kept) {
                if (wants_answer(slot)) return;  // stays until it is matched
                slot.message->complete = true;
            } else if (slot.state == in_state::filling) {
                context_.end_fill(*std::exchange(slot.request, nullptr), slot.tag, slot.total);
            }
            slot.state = in_state::none;
        }

        void answer(std::uint32_t id) noexcept {
            in_[id].answered = true;
            in_[id].say_proceed = true;
            say_pending(id);
        }

        /// Says what is to be said of an incoming stream, or remembers it for when there is room.
        void say_pending(std::uint32_t id) noexcept {
            in_slot& slot = in_[id];
            if (slot.say_proceed &&
                context_.template post_copied<segmented>(proceed, 0, id, {}) == post_result::done) {
                slot.say_proceed = false;
            }
            if (!slot.say_proceed && slot.say_gone &&
                context_.template post_copied<segmented>(gone, 0, id, {}) == post_result::done) {
                slot.say_gone = false;
            }
            if ((slot.say_proceed || slot.say_gone) &&
                std::find(unsaid_.begin(), unsaid_.end(), id) == unsaid_.end()) {
                unsaid_.push_back(id);
            }
        }

        [[nodiscard]] delivery abandoned(const detail::wire_header& h,
                                         std::span<const std::byte> payload) noexcept {
            if (h.tag >= in_.size() || !payload.empty()) return context_.violation();
            const auto id = static_cast<std::uint32_t>(h.tag);
            in_slot& slot = in_[id];
            if (slot.say_gone) return context_.violation();
            if (slot.state == in_state::filling) {
                context_.fail_fill(*std::exchange(slot.request, nullptr),
                                   make_error_code(errc::peer_canceled));
            } else if (slot.state == in_state::kept) {
                context_.withdraw(*slot.message);
            }
            slot.state = in_state::none;
            slot.say_proceed = false;
            slot.say_gone = true;
            say_pending(id);
            return delivery::taken;
        }

        Context& context_;
        std::vector<out_slot> out_;
        std::vector<in_slot> in_;
        std::vector<std::uint32_t> unsaid_;  // incoming streams with something to say, oldest first
        std::uint32_t free_out_ = none;
        std::uint32_t sending_ = 0;
        std::uint32_t leaving_ = 0;
        std::uint32_t current_ = 0;  // the stream whose piece is coming in parts
        std::size_t current_left_ = 0;
    };
};

}  // namespace rdmacoro
