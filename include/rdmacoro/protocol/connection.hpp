// connection: a link with matching, credits and policies; the sink of everything that arrives on it.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/protocols.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rdmacoro::detail {

/// A link of `Transport` whose messages travel as `Protocols` say. Also the context of the policies' engines.
template <class Transport, class Protocols>
class connection final : public connection_base {
    static_assert(!Protocols::delegates || matching_link<typename Transport::template link<sink_archetype>>,
                  "protocols<provider_matched> needs a transport whose link models matching_link");

public:
    using link_type = typename Transport::template link<connection>;

    connection(mailbox_base& box, peer_id source, typename Transport::connection made)
        : connection_base(box, source), engines_(*this), link_(std::move(made), *this) {
        const tuning limits = box.options().limits.or_else(tuning::of_environment());
        if (limits.any()) {
            tuned_ = limits.applied_to(link_.capabilities());
            limits_ = &tuned_;
        }
        owes_hello_ = true;
        say_what_is_owed();
    }
    ~connection();

    [[nodiscard]] link_type& link() noexcept { return link_; }

    /// Moves to another mailbox, with the messages that wait; receives posted there may meet them. Precondition: no
    /// receive or probe of the old mailbox is pending.
    void move_to(mailbox_base& box, peer_id source) noexcept;

    // ---- for operations

    /// Whether receives are told of when they are posted, and asked for when they are canceled.
    static constexpr bool speculates = Protocols::speculates && Transport::static_capabilities.one_sided;

    /// Whether the link matches; then receives and probes that begin go by `receive` and `look_for`.
    static constexpr bool delegates = Protocols::delegates;
    void receive(receive_request& r) noexcept { delegate().receive(r); }
    void look_for(peer_id) noexcept { delegate().look(); }
    /// Whether receives are with the link.
    [[nodiscard]] bool has_receives() noexcept {
        if constexpr (delegates) return delegate().has_receives();
        return false;
    }
    /// The engine of the only policy.
    [[nodiscard]] auto& delegate() noexcept
        requires delegates
    {
        return engines_.template at<0>();
    }

    /// Begins a send, in its turn.
    [[gnu::always_inline]] void send(send_request& r) noexcept {
        if constexpr (speculates) look_for_announcement(r);
        if (phase_ != phase::open || !queue_.empty()) [[unlikely]] {
            send_later(r);
            return;
        }
        const start_result begun = begin(r);
        if (begun != start_result::begun) [[unlikely]]
            wait(r, begun);
    }

    void cancel_send(send_request& r) noexcept;

    bool forget_receive(receive_request& r) noexcept override {
        bool now = true;
        engines_.each([&](auto& engine) noexcept { now = engine.forget_receive(r) && now; });
        if (now && r.block_ != nullptr) message_store::release(*std::exchange(r.block_, nullptr));
        return now;
    }

    void matched(unexpected_message& m, receive_request& r) noexcept override {
        engines_.with(m.policy, [&](auto& engine) noexcept { engine.matched(m, r); });
    }

    unsigned poll(unsigned budget) noexcept override { return link_.poll(budget); }

    /// A receive was posted and has found nothing.
    void posted(receive_request& r) noexcept {
        speculation([&](auto& engine) noexcept { engine.posted(r); });
    }
    /// A posted receive is canceled. False: it ends later, when no announcement of its buffer, or of one behind it, is left.
    [[nodiscard]] bool cancel_posted(receive_request& r) noexcept {
        bool now = true;
        speculation([&](auto& engine) noexcept { now = engine.cancel_posted(r); });
        return now;
    }

    /// As a receiving operation's poller: why no message can come any more, and one try to find one.
    [[nodiscard]] status why_not_from(peer_id) const noexcept {
        if (receives()) [[likely]]
            return {};
        return reason_ ? status(reason_) : status(errc::closed);
    }
    [[gnu::always_inline]] void poll_for(peer_id) noexcept { link_.poll(1); }

    [[nodiscard]] bool is_open() const noexcept { return phase_ == phase::open; }
    /// Told when the connection is open, or down before that.
    [[nodiscard]] phase_waiter*& opener() noexcept { return opener_; }

    /// Says goodbye once everything is sent; `closer` is told when the peer has seen it, or the link is down.
    void begin_close(phase_waiter& closer) noexcept;

    /// Why the handshake failed, for people; empty when there is nothing to add.
    [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

    // ---- for policies

    [[nodiscard]] const capabilities& link_capabilities() noexcept {
        return limits_ != nullptr ? *limits_ : link_.capabilities();
    }

    template <class Policy>
    [[gnu::always_inline]] post_result post(unsigned kind, std::uint8_t flags, tag_type tag,
                                            const const_buffers& payload, send_request& r) noexcept {
        r.posted_.done = &connection::on_transmitted;
        r.posted_.self = &r;
        const std::uint16_t credits = credits_.payable();
        const wire_header h{static_cast<std::uint8_t>(Protocols::template first_kind<Policy>() + kind), flags,
                            credits, tag};
        const post_result answer = link_.post(h.store(), payload, r.posted_);
        if (answer == post_result::done || answer == post_result::posted) [[likely]] {
            credits_.paid(credits);
            if (kind == 0) message_begun(tag);
        }
        return answer;
    }
    /// `post` of memory for which the link has answered that it is `in_place`.
    template <class Policy>
    post_result post_in_place(unsigned kind, std::uint8_t flags, tag_type tag, const const_buffers& payload,
                              send_request& r) noexcept {
        r.posted_.done = &connection::on_transmitted;
        r.posted_.self = &r;
        const std::uint16_t credits = credits_.payable();
        const wire_header h{static_cast<std::uint8_t>(Protocols::template first_kind<Policy>() + kind), flags,
                            credits, tag};
        const post_result answer = link_.post_in_place(h.store(), payload, r.posted_);
        if (answer == post_result::done || answer == post_result::posted) {
            credits_.paid(credits);
            if (kind == 0) message_begun(tag);
        }
        return answer;
    }
    template <class Policy>
    post_result post_copied(unsigned kind, std::uint8_t flags, tag_type tag,
                            std::span<const std::byte> payload) noexcept {
        const post_result answer =
            say(static_cast<std::uint8_t>(Protocols::template first_kind<Policy>() + kind), flags, tag,
                const_buffers(payload));
        if (kind == 0 && answer == post_result::done) message_begun(tag);
        return answer;
    }
    /// Takes memory back from the transport. True: what was posted counts as sent. False: the link is down, and the
    /// send has ended.
    [[nodiscard]] status revoke(send_request& r) noexcept {
        if (link_.revoke(r.posted_)) return {};
        close(make_error_code(errc::no_resources));
        return errc::no_resources;
    }

    // The order of messages, which announcements are told by: each side counts the messages of a direction alike, the
    // sender when the first message of a policy (its kind 0) is posted, the receiver when it met its receive or was kept.

    [[gnu::always_inline]] void message_begun([[maybe_unused]] tag_type tag) noexcept {
        speculation([&](auto& engine) noexcept { engine.begun(tag); });
    }
    void message_seen() noexcept { ++messages_seen_; }
    [[nodiscard]] std::uint64_t messages_seen() const noexcept { return messages_seen_; }
    [[nodiscard]] bool can_send() const noexcept { return phase_ == phase::open; }
    /// Whether messages of this length go by the policy that announces receives.
    [[nodiscard]] bool speculates_on(std::size_t bytes) noexcept {
        return Protocols::choose({bytes, false}, link_capabilities()) == Protocols::speculative_index;
    }

    /// As in the base, and counted.
    [[nodiscard, gnu::always_inline]] receive_request* match(tag_type tag) noexcept {
        receive_request* r = connection_base::match(tag);
        if constexpr (speculates) {
            if (r != nullptr) {
                message_seen();
                if (r->canceling_) [[unlikely]]
                    leaving_ = r;
                if (r->announcement_ != receive_request::not_announced)
                    speculation([&](auto& engine) noexcept { engine.superseded(*r); });
            }
        }
        return r;
    }
    void announce(unexpected_message& m) noexcept {
        if constexpr (speculates) message_seen();
        connection_base::announce(m);
    }
    void offer(unexpected_message& m) noexcept {
        m.source = source_;  // we may have moved to another mailbox since it began
        if (receive_request* r = match(m.tag)) {
            hand_over(m, *r);
        } else {
            announce(m);
        }
    }

    /// Opens memory to the peer, or answers an empty region.
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        ++counts_.regions_exposed;
        return link_.expose(memory, rights);
    }

    /// A send that has begun will end later, by `finish_send`. Or: something must be said before a goodbye; `settled` ends
    /// that.
    void under_way() noexcept { ++active_sends_; }
    void settled() noexcept {
        --active_sends_;
        if (phase_ == phase::closing) maybe_goodbye();
    }
    /// A send has ended while it began.
    [[gnu::always_inline]] void sent_at_once(send_request& r) noexcept {
        ++counts_.messages_sent;
        counts_.bytes_sent += r.from_.size();
        r.finish({});
    }
    void finish_send(send_request& r, status outcome) noexcept {
        --active_sends_;
        if (outcome) {
            r.finish(outcome);
        } else {
            sent_at_once(r);
        }
        if (phase_ == phase::closing) [[unlikely]]
            maybe_goodbye();
    }
    /// Something that made sends wait, and that only the policy knows, is over.
    void room_for_sends() noexcept {
        if (!queue_.empty() && !draining_) drain();
    }

    /// A message that met its receive at once. False: its sender had no credit for it, and the link is down.
    [[nodiscard, gnu::always_inline]] bool pass(std::uint32_t cost) noexcept {
        if (!credits_.pass(cost)) [[unlikely]] {
            violation();
            return false;
        }
        if (credits_.overdue()) [[unlikely]]
            say_credit();
        return true;
    }

    /// Room for a message of `bytes`, of which up to `room` come unasked. Not in the matcher yet. nullptr: the link is down.
    template <class Policy>
    [[nodiscard]] unexpected_message* keep(tag_type tag, std::size_t bytes, std::size_t room,
                                           std::uint32_t cost) noexcept {
        if (!credits_.charge(cost)) {
            violation();
            return nullptr;
        }
        unexpected_message* m = box_->store().make(room);
        if (m == nullptr) {
            close(make_error_code(errc::no_resources));
            return nullptr;
        }
        m->from = this;
        m->source = source_;
        m->cost = cost;
        m->tag = tag;
        m->bytes = bytes;
        m->policy = static_cast<std::uint8_t>(Protocols::template index_of<Policy>());
        return m;
    }
    /// A whole message for a receive.
    [[gnu::always_inline]] void fill_at_once(receive_request& r, tag_type tag,
                                             std::span<const std::byte> payload) noexcept {
        count_received(payload.size());
        r.got_ = {payload.size(), tag, source_};
        if (r.is_lent() || payload.size() > r.into_.size() || !r.into_.contiguous()) [[unlikely]] {
            fill_unusual(r, payload);
            return;
        }
        copy_bytes(r.into_.front().data(), payload.data(), payload.size());
        count_copy(payload.size());
        r.finish({});
    }

    /// A control message holds from now on.
    void obey(const wire_header& h) noexcept;

    /// The peer broke the protocol. Ends the link.
    delivery violation() noexcept {
        close(make_error_code(errc::protocol_violation));
        return delivery::taken;
    }
    void close(std::error_code why) noexcept {
        if (phase_ == phase::down) return;
        ending_ = why;
        link_.close(why);
    }

    // ---- the sink

    delivery deliver(const message_header& raw, std::span<const std::byte> payload) noexcept {
        const wire_header h = wire_header::load(raw);
        if (phase_ == phase::opening) [[unlikely]] {
            hello_arrived(h, payload);
            return delivery::taken;
        }
        delivery answer = delivery::taken;
        const bool short_one = engines_.dispatch_first(
            h.kind, [&](auto& engine, unsigned kind) noexcept { answer = engine.arrived(kind, h, payload); });
        if (!short_one) [[unlikely]]
            answer = deliver_other(h, payload);
        let_go();
        if (answer == delivery::taken) [[likely]]
            header_taken(h);
        return answer;
    }

    delivery begin_payload(const message_header& raw, std::size_t bytes) noexcept {
        const wire_header h = wire_header::load(raw);
        delivery answer = delivery::taken;
        const bool known =
            phase_ != phase::opening && engines_.dispatch(h.kind, [&](auto& engine, unsigned kind) noexcept {
                incoming_ = h.kind;
                answer = engine.begin_payload(kind, h, bytes);
            });
        if (!known) return violation();
        let_go();
        if (answer == delivery::taken) header_taken(h);
        return answer;
    }
    std::span<std::byte> payload_space() noexcept {
        std::span<std::byte> where;
        engines_.dispatch(incoming_,
                          [&](auto& engine, unsigned) noexcept { where = engine.payload_space(); });
        return where;
    }
    void payload_arrived(std::size_t n) noexcept {
        engines_.dispatch(incoming_, [&](auto& engine, unsigned) noexcept { engine.payload_arrived(n); });
    }

    void writable() noexcept {
        say_what_is_owed();
        engines_.each([](auto& engine) noexcept { engine.writable(); });
        drain();
        if (phase_ == phase::closing) maybe_goodbye();
    }

    void link_down(std::error_code why) noexcept;

    void say_credit() noexcept override {
        owes_credit_ = true;
        if (phase_ != phase::opening) say_what_is_owed();
    }

private:
    static void on_transmitted(completion& c, std::error_code outcome) noexcept {
        send_request& r = *static_cast<send_request::posted_completion&>(c).self;
        auto& self = *static_cast<connection*>(r.via_);
        self.engines_.with(r.policy_, [&](auto& engine) noexcept { engine.transmitted(r, outcome); });
    }

    /// Calls `visit(engine)` for the policy that announces receives, where the list has one.
    template <class Visit>
    [[gnu::always_inline]] void speculation(Visit visit) noexcept {
        if constexpr (speculates) visit(engines_.template at<Protocols::speculative_index>());
    }
    /// A receive that is being canceled has met a message: it does not wait for the whole of it.
    [[gnu::always_inline]] void let_go() noexcept {
        if constexpr (speculates) {
            if (leaving_ == nullptr) [[likely]]
                return;
            receive_request& r = *std::exchange(leaving_, nullptr);
            if (!r.done() && r.filling_ != nullptr && forget_receive(r))
                r.finish(make_error_code(errc::canceled));
        }
    }
    /// What has arrived may spare a long message its request.
    void look_for_announcement(send_request& r) noexcept {
        if (phase_ != phase::open || !queue_.empty() || !speculates_on(r.from_.size())) return;
        bool known = false;
        speculation([&](auto& engine) noexcept { known = engine.may_use(r.tag_); });
        if (!known) static_cast<void>(link_.poll(most_looked_at));
    }

    [[gnu::always_inline]] start_result begin(send_request& r) noexcept {
        const std::size_t policy = Protocols::choose({r.from_.size(), r.synchronous_}, link_capabilities());
        r.via_ = this;
        r.policy_ = static_cast<std::uint8_t>(policy);
        start_result begun = start_result::begun;
        if (policy == 0) [[likely]] {
            begun = engines_.template at<0>().start(r);
        } else {
            begin_other(r, begun);
        }
        return begun;
    }

    // What is not the list's first policy, which carries the shortest messages, stands apart from its way.
    [[gnu::noinline]] void begin_other(send_request& r, start_result& begun) noexcept;
    [[gnu::noinline]] delivery deliver_other(const wire_header& h,
                                             std::span<const std::byte> payload) noexcept;

    [[gnu::noinline]] void send_later(send_request& r) noexcept;

    [[gnu::noinline]] void wait(send_request& r, start_result why) noexcept {
        if (why == start_result::wait_credit) {
            ++counts_.credit_waits;
        } else {
            ++counts_.room_waits;
        }
        queue_.push_front(r);
    }

    /// Begins the sends that wait, in order, as far as it goes.
    void drain() noexcept {
        if (draining_ || (phase_ != phase::open && phase_ != phase::closing)) return;
        draining_ = true;
        while (send_request* r = queue_.pop_front()) {
            if (begin(*r) != start_result::begun) {
                queue_.push_front(*r);
                break;
            }
        }
        draining_ = false;
        if (phase_ == phase::closing) maybe_goodbye();
    }

    [[gnu::always_inline]] void header_taken(const wire_header& h) noexcept {
        if (h.credits == 0 || phase_ == phase::down) return;
        if (!credits_.returned(h.credits)) [[unlikely]] {
            violation();
        } else if (!queue_.empty()) [[unlikely]] {
            drain();
        }
    }

    post_result say(std::uint8_t kind, std::uint8_t flags, tag_type tag,
                    const const_buffers& payload) noexcept {
        const std::uint16_t credits =
            kind == static_cast<std::uint8_t>(control_kind::hello) ? std::uint16_t{0} : credits_.payable();
        const post_result answer = link_.post_copied(wire_header{kind, flags, credits, tag}.store(), payload);
        if (answer == post_result::done) credits_.paid(credits);
        return answer;
    }
    [[nodiscard]] bool say(control_kind kind) noexcept {
        tag_type before = 0;  // messages that go another way
        if constexpr (delegates) before = delegate().posted();
        return say(static_cast<std::uint8_t>(kind), 0, before, {}) == post_result::done;
    }

    /// Says what belongs to no policy and could not be said before.
    void say_what_is_owed() noexcept;

    void maybe_goodbye() noexcept {
        if (said_goodbye_ || active_sends_ != 0 || !queue_.empty()) return;
        said_goodbye_ = true;
        owes_goodbye_ = true;
        say_what_is_owed();
    }

    void hello_arrived(const wire_header& h, std::span<const std::byte> payload) noexcept;

    [[nodiscard]] static std::string printable(std::span<const std::byte> raw);

    [[gnu::noinline]] void control_arrived(const wire_header& h, std::span<const std::byte> payload) noexcept;

    [[gnu::noinline]] void fill_unusual(receive_request& r, std::span<const std::byte> payload) noexcept;
    void lend_at_once(receive_request& r, std::span<const std::byte> payload) noexcept;
    static constexpr unsigned most_looked_at = 8;  // messages, before a long send begins

    typename Protocols::template engines<connection, Transport::static_capabilities.one_sided> engines_;
    std::uint64_t messages_seen_ = 0;     // of the peer; counted where the list speculates
    receive_request* leaving_ = nullptr;  // it met what is being looked at while it was being canceled
    bool said_goodbye_ = false;
    bool draining_ = false;
    std::uint8_t incoming_ = 0;
    phase_waiter* opener_ = nullptr;
    phase_waiter* closer_ = nullptr;
    std::string refusal_;
    const capabilities* limits_ = nullptr;  // what this run says of the link, if anything
    capabilities tuned_{};
    link_type link_;
};

}  // namespace rdmacoro::detail

#include <rdmacoro/protocol/detail/connection_control.hpp>
