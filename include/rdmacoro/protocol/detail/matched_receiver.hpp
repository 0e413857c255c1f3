// The receiving half of provider_matched: receives that are posted with the link, and messages that are claimed from it.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/detail/connection_description.hpp>
#include <rdmacoro/protocol/detail/matched_sender.hpp>
#include <rdmacoro/protocol/detail/withdrawal_list.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace rdmacoro::detail {

/// A receive is in one of three places:
///  - with the link (`posted`), as long as nothing is claimed and nothing waits with the mailbox;
///  - with the mailbox's matcher, by which claimed messages are matched in the order sent: they matched no receive that
///    is with the link, and those were posted before;
///  - with a claimed message that it has matched (`filling`, `waiting`), until the message is in its memory.
/// A claimed message without a receive is stored in the matcher like any other: a short one whole, once it is fetched,
/// a long one with its claim.
template <class Context, class Policy>
class matched_receiver {
public:
    explicit matched_receiver(Context& context) noexcept : context_(context) {}

    [[nodiscard]] bool has_posted() const noexcept { return posted_ != 0; }

    // ---- receives

    void receive(receive_request& r) noexcept {
        const matching_traits& link = context_.link().matching();
        const tag_type uncarried = uncarried_bits(link);
        if ((r.wanted_.tag & uncarried) != 0) {
            r.finish(errc::invalid_argument);
            return;
        }
        if (r.is_lent() || r.into_.pieces() > link.pieces || !may_post()) {
            wait_here(r);
            return;
        }
        hold(r, stage::posted);
        settle(context_.link().post_receive(r.wanted_.tag, r.wanted_.mask & ~uncarried, r.into_, r.posted_),
               r);
    }

    /// Claims messages as long as a receive or probe of the mailbox waits for one.
    void look() noexcept {
        while (!claiming_ && wanted() && !context_.is_down()) {
            claim_.self = this;
            claim_.done = [](completion& c, std::error_code outcome) noexcept {
                static_cast<posted_claim&>(c).self->claimed(outcome);
            };
            const post_result answer = context_.link().claim(claim_);
            if (answer == post_result::posted) {
                claiming_ = true;
                giving_up_ = false;
            }
            if (answer != post_result::done) return;  // no room: tried again when there is some
            take(claim_);
        }
    }

    /// A receive has matched a message that is not whole, and not in the matcher any more.
    void matched(unexpected_message& m, receive_request& r) noexcept {
        aside& a = aside_of(m);
        if (m.stream != 0) {
            const tagged_completion found = a.fetch;
            context_.free(m);
            fill(r, found);
            return;
        }
        a.waiting = &r;
        hold(r, stage::waiting);
        waiting_.push_back(r);
        r.posted_.transport_state = &a;
    }

    /// A receive that is held here is canceled. False: it ends later.
    [[nodiscard]] bool forget(receive_request& r) noexcept {
        switch (r.posted_.place) {
            case stage::posted:
                if (!context_.link().withdraw(r.posted_)) break;
                drop(r);
                return true;
            case stage::waiting: {
                aside& a = *static_cast<aside*>(r.posted_.transport_state);
                r.list_node<receive_request>::unlink();
                a.waiting = nullptr;
                a.unwanted = true;
                return true;
            }
            default: break;  // its message is coming
        }
        r.canceling_ = true;
        return false;
    }

    /// The link has room again for posts that it refused.
    void writable() noexcept {
        for (receive_request* r = answering_.front(); r != nullptr; r = answering_.front()) {
            if (!send(matched_word::matched, r->posted_.note)) break;
            r->list_node<receive_request>::unlink();
            conclude(*r);
        }
        send_withdrawn();
        for (receive_request* r = starting_.pop_front(); r != nullptr; r = starting_.pop_front()) {
            if (!receive_claimed(*r)) break;
        }
        for (aside* a = unfetched_.pop_front(); a != nullptr; a = unfetched_.pop_front()) {
            --fetching_;
            if (!fetch(*a)) break;
        }
        look();
        take_last_words();
    }

    /// Adds the receives that are held here, and not in the mailbox.
    [[gnu::cold]] void describe(connection_description& into) noexcept {
        for (receive_request* r = held_.front(); r != nullptr; r = held_.next(*r)) {
            if (r->posted_.place != stage::posted) {
                into.receive(*r, "its message is coming", into.transfers, r->posted_.bytes);
            } else if (r->canceling_) {
                into.receive(*r, "canceled, the link is not done with it", into.transfers);
            } else {
                into.receive(*r, "posted with the link, no message has met it", next_actor::peer_send);
            }
        }
        for (auto* list : {&waiting_, &starting_}) {
            for (receive_request* r = list->front(); r != nullptr; r = list->next(*r)) {
                if (list == &waiting_ && !static_cast<aside*>(r->posted_.transport_state)->linked())
                    into.receive(*r, "its message is being fetched", into.transfers);
                else
                    into.receive(*r, "met, no room to ask for its message", into.room);
            }
        }
        for (receive_request* r = answering_.front(); r != nullptr; r = answering_.next(*r))
            into.receive(*r, "is there, no room to say so", into.room);
    }

    // ---- control messages

    /// The sender asks for a message back. False: it asks for too many.
    [[nodiscard]] bool withdraw_asked(std::uint32_t note) noexcept {
        if (note == 0 || !asked_.add(note)) return false;
        unexpected_message* found = nullptr;  // among the first, where sends are asked back in their order
        const auto looks_on = [&](unexpected_message& m) noexcept {
            if (m.from == &context_ && !m.complete && m.stream == note) found = &m;
            return found == nullptr;
        };
        context_.mailbox().matching().each_masked(context_.source(), any_tag, looks_on);
        if (found == nullptr) {
            look();  // it has not come, or a receive has it already
            return true;
        }
        context_.link().discard(aside_of(*found).fetch.claim);
        context_.withdraw(*found);
        asked_.found(note);
        send_withdrawn();
        return true;
    }
    void settled(std::uint32_t note) noexcept { asked_.forget(note); }

    [[nodiscard]] bool last_word(const wire_header& h) noexcept {
        if (last_count_ == last_words_.size()) return false;
        last_words_[last_count_++] = h;
        look();
        take_last_words();
        return true;
    }
    void peer_leaves() noexcept {
        for (receive_request* r = held_.front(); r != nullptr;) {
            receive_request* after = held_.next(*r);
            if (r->posted_.place == stage::posted && context_.link().withdraw(r->posted_)) {
                drop(*r);
                context_.fail_fill(*r, make_error_code(errc::closed));
            }
            r = after;
        }
    }

    /// The link is down, and has ended everything posted with it.
    void fail(std::error_code reason) noexcept {
        claiming_ = false;
        asked_.clear();
        last_count_ = 0;
        while (receive_request* r = starting_.pop_front()) end_unfilled(*r, reason);
        while (receive_request* r = answering_.pop_front()) conclude(*r);
        while (aside* a = unfetched_.pop_front()) fetched(*a, reason);
        each_incomplete([&](unexpected_message& m) noexcept { context_.lose(m); });
    }

private:
    using stage = receive_request::stage;

    struct posted_claim : tagged_completion {
        matched_receiver* self;
    };

    /// A claimed message behind its `unexpected_message` and the room for its bytes.
    struct aside : list_node<aside> {
        struct fetch_completion : tagged_completion {
            aside* of;
        };
        fetch_completion fetch;  // the claimed message, and its fetching
        matched_receiver* owner;
        unexpected_message* message;
        receive_request* waiting = nullptr;  // has matched it before it is whole
        bool unwanted = false;               // that receive was canceled
    };
    static_assert(alignof(aside) <= alignof(unexpected_message));
    static_assert(sizeof(aside) + alignof(aside) <= claim_overhead);

    // ---- where a receive is

    /// Whether a receive, a probe or a control message waits for messages to be claimed.
    [[nodiscard]] bool wanted() noexcept {
        matcher& here = context_.mailbox().matching();
        return here.posted() != 0 || here.has_probes() || last_count_ != 0 || asked_.awaited() != 0;
    }
    /// Whether a receive may be posted with the link: it must not overtake the receives that wait in the mailbox.
    [[nodiscard]] bool may_post() noexcept {
        if (claiming_ && !giving_up_ && !wanted()) {
            giving_up_ = true;
            claiming_ = !context_.link().withdraw(claim_);
        }
        return !claiming_ && context_.mailbox().matching().posted() == 0;
    }
    void wait_here(receive_request& r) noexcept {
        r.filling_ = nullptr;
        context_.mailbox().matching().post(r);
        look();
    }

    void hold(receive_request& r, stage place) noexcept {
        r.filling_ = &context_;
        r.posted_.place = place;
        r.posted_.self = &r;
        r.posted_.done = [](completion& c, std::error_code outcome) noexcept {
            receive_request& posted = *static_cast<receive_request::posted_completion&>(c).self;
            auto& self = static_cast<Context*>(posted.filling_)->delegate().receiver();
            self.drop(posted);
            self.received(posted, outcome);
        };
    }
    /// Moves a receive on by its post's answer. False: there was no room.
    bool settle(post_result answer, receive_request& r) noexcept {
        switch (answer) {
            case post_result::done: received(r, {}); return true;
            case post_result::posted:
                held_.push_back(r);
                ++(r.posted_.place == stage::posted ? posted_ : filling_);
                return true;
            case post_result::retry:
                if (r.posted_.place == stage::posted) {
                    wait_here(r);
                } else {
                    starting_.push_front(r);
                }
                return false;
            case post_result::failed: end_unfilled(r, context_.why_failed()); return true;
        }
        return true;
    }
    /// The receive is no longer with the link.
    void drop(receive_request& r) noexcept {
        r.list_node<receive_request>::unlink();
        --(r.posted_.place == stage::posted ? posted_ : filling_);
    }
    void end_unfilled(receive_request& r, std::error_code why) noexcept {
        if (why == errc::canceled && !r.canceling_) why = make_error_code(errc::closed);
        discarding_receive* instead = nullptr;
        if (why == errc::canceled && r.discards_ && r.posted_.place == stage::posted)
            instead = context_.mailbox().make_discarding(r);
        context_.fail_fill(r, why);
        if (instead != nullptr) wait_here(*instead);
    }

    // ---- messages

    /// Calls `visit` for each stored message of this link that is not whole; it may take that message out.
    template <class Visit>
    void each_incomplete(Visit visit) noexcept {
        context_.mailbox().matching().each_stored(context_.source(), [&](unexpected_message& m) noexcept {
            if (m.from == &context_ && !m.complete) visit(m);
        });
    }

    void claimed(std::error_code outcome) noexcept {
        claiming_ = false;
        if (outcome && outcome != errc::canceled) return;  // the link is going down
        if (!outcome) take(claim_);
        look();
        take_last_words();
    }

    /// A message has been claimed.
    void take(const tagged_completion& found) noexcept {
        ++seen_;
        const std::uint32_t cost = matched_cost(found.bytes, context_.credits().granted());
        if (found.note != 0 && asked_.found(found.note)) {
            context_.link().discard(found.claim);
            static_cast<void>(context_.pass(cost));
            send_withdrawn();
        } else if (receive_request* r = context_.match(found.tag)) {
            if (context_.pass(cost)) {
                fill(*r, found);
            } else {
                context_.fail_fill(*r, make_error_code(errc::protocol_violation));
            }
        } else {
            keep(found, cost);
        }
    }

    void keep(const tagged_completion& found, std::uint32_t cost) noexcept {
        // A message with a note may be asked back by its sender: it stays there. One without is stored whole, so it must not
        // be longer than what its sender has paid for.
        if (found.note == 0 && found.bytes > unasked_bytes(context_.credits().granted())) {
            context_.violation();
            return;
        }
        const std::size_t room = found.note == 0 ? room_of(found.bytes) : 0;
        unexpected_message* m =
            context_.template keep<Policy>(found.tag, found.bytes, room + sizeof(aside), cost);
        if (m == nullptr) return;
        m->complete = false;
        m->stream = found.note;
        auto* a = ::new (static_cast<void*>(m->payload() + room)) aside;
        static_cast<tagged_completion&>(a->fetch) = found;
        a->owner = this;
        a->message = m;
        if (found.note == 0) fetch(*a);
        context_.announce(*m);
    }
    [[nodiscard]] static constexpr std::size_t room_of(std::size_t bytes) noexcept {
        return (bytes + alignof(aside) - 1) / alignof(aside) * alignof(aside);
    }
    [[nodiscard]] static aside& aside_of(unexpected_message& m) noexcept {
        return *std::launder(reinterpret_cast<aside*>(m.payload() + (m.stream == 0 ? room_of(m.bytes) : 0)));
    }

    /// Fetches a message's bytes. False: the link has no room to ask for them now.
    bool fetch(aside& a) noexcept {
        a.fetch.of = &a;
        a.fetch.done = [](completion& c, std::error_code outcome) noexcept {
            aside& done = *static_cast<typename aside::fetch_completion&>(c).of;
            matched_receiver& self = *done.owner;
            --self.fetching_;
            self.fetched(done, outcome);
            if (!outcome) self.take_last_words();
        };
        const mutable_buffers into(std::span<std::byte>(a.message->payload(), a.message->bytes));
        switch (context_.link().receive_claimed(a.fetch.claim, into, a.fetch)) {
            case post_result::done: fetched(a, {}); return true;
            case post_result::posted: ++fetching_; return true;
            case post_result::retry:
                ++fetching_;
                unfetched_.push_front(a);
                return false;
            case post_result::failed: fetched(a, context_.why_failed()); return true;
        }
        return true;
    }
    void fetched(aside& a, std::error_code outcome) noexcept {
        unexpected_message& m = *a.message;
        receive_request* r = a.waiting;
        if (r != nullptr) r->list_node<receive_request>::unlink();
        const bool unwanted = a.unwanted;  // `a` lies in memory that is free once the message is handed over
        if (!outcome) {
            m.complete = true;
            m.stored = m.bytes;
            if (r != nullptr) connection_base::hand_over(m, *r);
        } else if (r != nullptr) {
            end_unfilled(*r, outcome);
        }
        if (unwanted || (outcome && r != nullptr)) context_.free(m);
    }

    /// Receives a claimed message into its receive's memory.
    void fill(receive_request& r, const tagged_completion& found) noexcept {
        hold(r, stage::filling);
        const completion::function done = r.posted_.done;
        static_cast<tagged_completion&>(r.posted_) = found;
        r.posted_.done = done;
        const std::size_t longest = r.is_lent() ? context_.mailbox().options().lent_bytes : r.into_.size();
        const bool in_one = r.is_lent() || r.into_.pieces() > context_.link().matching().pieces;
        if (found.bytes > longest) {
            r.code_ = errc::truncated;
            r.info_ = found.bytes;
        } else if (in_one && (r.block_ = context_.mailbox().store().make(found.bytes)) == nullptr) {
            r.code_ = errc::no_resources;
            r.info_ = 0;
        }
        if (r.code_) {
            context_.link().discard(found.claim);
            answer(r);
        } else {
            static_cast<void>(receive_claimed(r));
        }
    }
    /// False: there is no room now.
    bool receive_claimed(receive_request& r) noexcept {
        const mutable_buffers into = context_.destination(r, r.posted_.bytes);
        return settle(context_.link().receive_claimed(r.posted_.claim, into, r.posted_), r);
    }

    /// The link has received into its memory, or has failed to.
    void received(receive_request& r, std::error_code outcome) noexcept {
        if (outcome) {
            end_unfilled(r, outcome);
            return;
        }
        const tagged_completion& got = r.posted_;
        if (r.posted_.place == stage::posted) {
            ++seen_;
            if (!context_.pass(matched_cost(got.bytes, context_.credits().granted()))) {
                context_.fail_fill(r, make_error_code(errc::protocol_violation));
                return;
            }
            if (got.bytes > r.into_.size()) {
                r.code_ = errc::truncated;
                r.info_ = got.bytes;
            }
        }
        answer(r);
        take_last_words();
    }
    /// Notifies the sender, where it waits for that, and ends the receive.
    void answer(receive_request& r) noexcept {
        if (const std::uint32_t note = r.posted_.note; note != 0) {
            settled(note);
            if (!answering_.empty() || !send(matched_word::matched, note)) {
                r.posted_.place = stage::answering;
                answering_.push_back(r);
                return;
            }
        }
        conclude(r);
    }
    void conclude(receive_request& r) noexcept {
        if (r.code_) {
            const rdmacoro::received message{r.posted_.bytes, r.posted_.tag, context_.source()};
            connection_base::end_receive(&context_, r, message, r.code_);
            return;
        }
        if (r.block_ != nullptr && !r.is_lent()) {  // more pieces than the link takes
            const std::size_t bytes = r.posted_.bytes;
            copy_in({r.block_->payload(), bytes}, r.into_, 0);
            context_.count_copy(bytes);
            message_store::release(*std::exchange(r.block_, nullptr));
        }
        context_.end_fill(r, r.posted_.tag, r.posted_.bytes);
    }

    // ---- control messages

    [[nodiscard]] bool send(matched_word word, std::uint32_t note) noexcept {
        return context_.template post_copied<Policy>(static_cast<unsigned>(word), 0, note, {}) ==
               post_result::done;
    }
    void send_withdrawn() noexcept {
        asked_.send_found(
            [this](std::uint32_t note) noexcept { return send(matched_word::withdrawn, note); });
    }

    /// A goodbye takes effect once every message that was sent before it is here: with its receive, or stored.
    void take_last_words() noexcept {
        while (last_count_ != 0 && fetching_ == 0 && filling_ == 0 && starting_.empty()) {
            const wire_header h = last_words_[0];
            if (seen_ > h.tag) {
                context_.violation();
                return;
            }
            if (seen_ < h.tag) return;
            last_words_[0] = last_words_[1];
            --last_count_;
            context_.obey(h);
        }
    }

    Context& context_;
    intrusive_list<receive_request> held_;       // with the link
    intrusive_list<receive_request> starting_;   // have matched one that the link had no room to ask for
    intrusive_list<receive_request> waiting_;    // have matched a message that is being fetched
    intrusive_list<receive_request> answering_;  // done, except for `matched` to the sender
    intrusive_list<aside> unfetched_;            // as `starting_`, for stored messages
    posted_claim claim_;
    bool claiming_ = false;   // `claim_` is with the link
    bool giving_up_ = false;  // and `withdraw` was called for it
    std::size_t posted_ = 0;
    std::size_t filling_ = 0;   // receives that the link fills from claimed messages
    std::size_t fetching_ = 0;  // messages that are being fetched, or wait for room to be
    std::uint64_t seen_ = 0;    // messages that were claimed or received
    std::size_t last_count_ = 0;
    withdrawal_list<most_withdrawals> asked_;
    std::array<wire_header, 2> last_words_;
};

}  // namespace rdmacoro::detail
