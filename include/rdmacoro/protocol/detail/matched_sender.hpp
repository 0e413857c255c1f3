// The sending half of provider_matched: messages that are posted with the link, and the receiver's answers to some of them.
#pragma once

#include <rdmacoro/protocol/detail/connection_description.hpp>
#include <rdmacoro/protocol/detail/owed_messages.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/message_store.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// Control messages beside the messages themselves, in a header with the message's note as its tag.
enum class matched_word : unsigned {
    matched,    ///< the message has matched a receive
    withdraw,   ///< its sender asks for it back
    withdrawn,  ///< it matched no receive, and is discarded
    settled     ///< `matched` came, and the request by `withdraw` is void
};

/// Messages of one direction that may be asked back at a time; more wait their turn.
inline constexpr std::size_t most_withdrawals = 64;

/// Memory of a claimed message that is stored, besides that of any stored message; generous for every build.
inline constexpr std::size_t claim_overhead = 128;

/// A message's cost: the memory to store it and its claim, as far as it may come unasked. Both sides must agree on it.
[[nodiscard]] constexpr std::uint32_t matched_cost(std::size_t bytes, std::uint32_t budget) noexcept {
    return message_cost(std::min(bytes, unasked_bytes(budget)) + claim_overhead);
}

/// Bits of a tag that the link does not carry.
[[nodiscard]] constexpr tag_type uncarried_bits(const matching_traits& link) noexcept {
    return link.tag_bits >= 64 ? 0 : ~tag_type{0} << link.tag_bits;
}

/// A message that the receiver answers has a note, which names its slot: the number and a generation, so that
/// a late answer does not refer to another message. The note of all others is 0.
template <class Context, class Policy>
class matched_sender final : private owed_messages {
public:
    explicit matched_sender(Context& context) noexcept
        : owed_messages(context, slot_type_of<slot, owing_slot>), context_(context) {}

    [[nodiscard]] std::uint64_t posted() const noexcept { return posted_; }

    start_result start(send_request& r) noexcept {
        const matching_traits& link = context_.link().matching();
        const std::size_t bytes = r.from_.size();
        const std::uint32_t budget = context_.credits().peer_budget();
        if (bytes > link.longest || (r.tag_ & uncarried_bits(link)) != 0) {
            r.finish(bytes > link.longest ? errc::message_too_long : errc::invalid_argument);
            return start_result::begun;
        }
        const std::uint32_t cost = matched_cost(bytes, budget);
        if (!context_.credits().take(cost)) return start_result::wait_credit;
        // A message that the receiver might not have to store ends when it is matched, so that nothing is left behind by
        // a close.
        const bool named = r.synchronous_ || bytes > std::min(link.buffered_bytes, unasked_bytes(budget));
        const start_result begun = post(r, named, cost);
        if (begun != start_result::begun) context_.credits().untake(cost);
        return begun;
    }

    /// The link is done with the memory.
    void transmitted(send_request& r, std::error_code outcome) noexcept {
        release_staged(r);
        if (r.stream_ == none) {
            r.unlink();
            context_.finish_send(r, outcome);
            return;
        }
        slot& s = at(r.stream_);
        s.transmitted = true;
        if (outcome) {
            end(r.stream_, outcome);  // the link is going down: no answer comes any more
        } else {
            settle(r.stream_);
        }
    }

    void cancel(send_request& r) noexcept {
        if (r.stream_ == none) {  // too late, as with the other policies
            r.unlink();
            const status outcome = context_.revoke(r);
            release_staged(r);
            context_.finish_send(r, outcome);
            return;
        }
        slot& s = at(r.stream_);
        if (s.asks || s.answered) return;  // ends by itself
        s.asks = true;
        r.in_flight_ = true;  // not a send that has not begun, which is listed, too
        turns_.push_back(r);
        give_turns();
    }

    /// The receiver's answer to a message. False: there is no such message.
    [[nodiscard]] bool answered(std::uint32_t note, bool withdrawn) noexcept {
        const std::uint32_t id = (note & number_mask) - 1;
        if (id >= slots_.size() || note_of(id) != note) return false;
        slot& s = at(id);
        if (s.request == nullptr || s.answered) return false;
        const bool has_turn = s.asks && !s.request->linked();
        const bool asked = has_turn && (s.owed & owes_withdraw) == 0;
        if (withdrawn && !asked) return false;
        s.answered = true;
        s.withdrawn = withdrawn;
        s.owed = 0;
        if (asked && !withdrawn) {
            owe(id, owes_settled);
        } else if (has_turn) {
            --asked_;
        } else {
            s.request->unlink();
        }
        settle(id);
        give_turns();
        return true;
    }

    /// The link has room again for control messages that it refused.
    void writable() noexcept { send_remembered(); }

    /// Adds the sends that it holds.
    [[gnu::cold]] void describe(connection_description& into) noexcept {
        for (send_request* r = unnamed_.front(); r != nullptr; r = unnamed_.next(*r))
            into.send(*r, "handed to the network", into.room);
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            const slot& s = at(id);
            if (s.request == nullptr) continue;
            if ((s.owed & owes_withdraw) != 0) {
                into.send(*s.request, "canceled, no room to say so", into.room);
            } else if (s.request->linked()) {
                into.send(*s.request, "canceled, others are asked back first", next_actor::peer_poll);
            } else if (s.asks && !s.answered) {
                into.send(*s.request, "canceled, the peer has not answered", next_actor::peer_poll);
            } else if (s.answered) {
                into.send(*s.request, "met, the link is not done with it", into.transfers);
            } else {
                into.send(*s.request, "posted, no receive has met it", next_actor::peer_receive);
            }
        }
    }

    void fail(std::error_code reason) noexcept {
        forget_owed();
        for (std::uint32_t id = 0; id < slots_.size(); ++id) {
            slot& s = at(id);
            if (s.request == nullptr) continue;
            release_staged(*s.request);
            end(id, reason);
        }
    }

private:
    enum owed_bits : std::uint8_t { owes_withdraw = 1, owes_settled = 2 };
    struct slot final : owing_slot {
        std::uint16_t generation = 0;
        bool transmitted = false;
        bool answered = false;
        bool withdrawn = false;
        bool asks = false;
        send_request* request = nullptr;
    };
    static constexpr std::uint32_t none = slot_table::none;
    static constexpr std::uint32_t number_mask = 0xffff;
    static constexpr std::uint32_t most_slots = number_mask;

    [[nodiscard]] slot& at(std::uint32_t id) noexcept { return static_cast<slot&>(owing(id)); }
    [[nodiscard]] std::uint32_t note_of(std::uint32_t id) noexcept {
        return std::uint32_t{at(id).generation} << 16 | (id + 1);
    }

    void note_since(send_request& r) noexcept {
        r.since_ = context_.mailbox().owner().coarse_now().time_since_epoch().count();
    }
    start_result post(send_request& r, bool named, std::uint32_t cost) noexcept {
        r.stream_ = none;
        r.staged_ = nullptr;
        if (named) {
            wants_slot_ = slots_.exhausted(most_slots);
            if (wants_slot_) return start_result::wait_room;
            r.stream_ = slots_.take();
            if (r.stream_ == none) return no_memory(r, cost);
            slot& s = at(r.stream_);
            const std::uint16_t generation = s.generation;
            s = {};
            s.generation = generation;
            s.request = &r;
            note_since(r);
        }
        if (r.from_.pieces() > context_.link().matching().pieces && !stage(r)) return no_memory(r, cost);
        r.posted_.self = &r;
        r.posted_.done = [](completion& c, std::error_code outcome) noexcept {
            send_request& sent = *static_cast<send_request::posted_completion&>(c).self;
            static_cast<Context*>(sent.via_)->delegate().transmitted(sent, outcome);
        };
        const post_result answer = post_with_link(r, named ? note_of(r.stream_) : 0);
        if (answer == post_result::done || answer == post_result::posted) {
            ++posted_;
            ++context_.counts().provider_matched_sent;
            if (answer == post_result::done) release_staged(r);
            if (answer == post_result::done && !named) {
                context_.sent_at_once(r);
            } else {
                if (named) {
                    at(r.stream_).transmitted = answer == post_result::done;
                } else {
                    note_since(r);
                    r.in_flight_ = true;
                    unnamed_.push_back(r);
                }
                context_.under_way();
            }
            return start_result::begun;
        }
        release_staged(r);
        give(r);
        if (answer == post_result::retry) return start_result::wait_room;
        r.finish(context_.why_failed());
        return start_result::begun;
    }
    [[nodiscard]] post_result post_with_link(send_request& r, std::uint32_t note) noexcept {
        if (r.staged_ == nullptr) return context_.link().post_tagged(r.tag_, note, r.from_, r.posted_);
        const std::span<const std::byte> all(r.staged_->payload(), r.from_.size());
        return context_.link().post_tagged(r.tag_, note, const_buffers(all), r.posted_);
    }
    /// Ends the send, for which the peer gives no credit back.
    start_result no_memory(send_request& r, std::uint32_t cost) noexcept {
        give(r);
        context_.credits().untake(cost);
        r.finish(errc::no_resources);
        return start_result::begun;
    }

    /// More pieces than the link takes become one.
    [[nodiscard]] bool stage(send_request& r) noexcept {
        r.staged_ = context_.mailbox().store().make(r.from_.size());
        if (r.staged_ == nullptr) return false;
        copy_out(r.from_, 0, r.staged_->payload(), r.from_.size());
        context_.count_copy(r.from_.size());
        return true;
    }
    static void release_staged(send_request& r) noexcept {
        if (r.staged_ != nullptr) message_store::release(*std::exchange(r.staged_, nullptr));
    }

    /// Ends the send once the link is done with it and the receiver has answered.
    void settle(std::uint32_t id) noexcept {
        const slot& s = at(id);
        if (!s.transmitted || !s.answered) return;
        end(id, s.withdrawn ? status(errc::canceled) : status());
        if (wants_slot_) context_.room_for_sends();
    }
    void end(std::uint32_t id, status outcome) noexcept {
        slot& s = at(id);
        send_request& r = *std::exchange(s.request, nullptr);
        r.unlink();
        s.owed &= owes_settled;
        if (s.owed == 0) free(id);
        context_.finish_send(r, outcome);
    }
    /// Asks messages back, those in front first, up to the limit.
    void give_turns() noexcept {
        while (asked_ < most_withdrawals) {
            send_request* const r = turns_.pop_front();
            if (r == nullptr) return;
            ++asked_;
            owe(r->stream_, owes_withdraw);
        }
    }
    void give(send_request& r) noexcept {
        if (r.stream_ != none) free(std::exchange(r.stream_, none));
    }
    void free(std::uint32_t id) noexcept {
        at(id).request = nullptr;
        ++at(id).generation;
        slots_.give(id);
    }

    post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override {
        const bool asks = message == owes_withdraw;
        const auto kind = static_cast<unsigned>(asks ? matched_word::withdraw : matched_word::settled);
        return context_.template post_copied<Policy>(kind, 0, note_of(id), {});
    }
    void owed_sent(std::uint32_t id, std::uint8_t message) noexcept override {
        if (message == owes_withdraw) return;
        --asked_;
        give_turns();
        if (at(id).request != nullptr) return;
        free(id);
        if (wants_slot_) context_.room_for_sends();
    }

    Context& context_;
    intrusive_list<send_request> unnamed_;  // with the link, and not answered by the receiver
    intrusive_list<send_request> turns_;    // canceled, and asked back when others are settled
    std::uint64_t posted_ = 0;
    std::size_t asked_ = 0;    // messages that have had their turn and are not settled
    bool wants_slot_ = false;  // a send waits for one
};

}  // namespace rdmacoro::detail
