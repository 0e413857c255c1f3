// connection: a link with matching, credits and policies; the sink of everything that arrives on it.
#pragma once

#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/matching.hpp>
#include <rdmacoro/protocol/message_store.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/protocol/protocols.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rdmacoro {

/// How much an endpoint or mailbox may keep.
struct mailbox_options {
    /// For each peer, memory for messages that come before their receive, in bytes; at least 256 KiB.
    std::size_t unexpected_bytes = 4u << 20;
    /// Longest message that a lent receive accepts, in bytes.
    std::size_t lent_bytes = 64u << 20;
    /// How long a new peer may take to say who it is.
    duration handshake_limit = std::chrono::seconds(10);
};

namespace detail {

/// What the connections of one endpoint or mailbox share.
class mailbox_base {
public:
    mailbox_base(scheduler& owner, const mailbox_options& options, bool many_sources)
        : owner_(owner), options_(options), matcher_(many_sources), store_(new message_store) {}
    mailbox_base(const mailbox_base&) = delete;
    mailbox_base& operator=(const mailbox_base&) = delete;
    ~mailbox_base() {
        while (unexpected_message* m = matcher_.oldest()) {
            matcher_.remove(*m);
            message_store::release(*m);
        }
        store_->abandon();
    }

    [[nodiscard]] scheduler& owner() noexcept { return owner_; }
    [[nodiscard]] const mailbox_options& options() const noexcept { return options_; }
    [[nodiscard]] matcher& matching() noexcept { return matcher_; }
    [[nodiscard]] message_store& store() noexcept { return *store_; }

private:
    scheduler& owner_;
    mailbox_options options_;
    matcher matcher_;
    message_store* store_;
};

/// What a connection is without the types of its transport and protocols.
class connection_base {
public:
    connection_base(const connection_base&) = delete;
    connection_base& operator=(const connection_base&) = delete;

    /// `half_closed`: the peer said goodbye; what it sent can still be received.
    enum class phase : std::uint8_t { opening, open, half_closed, closing, down };

    [[nodiscard]] mailbox_base& box() noexcept { return *box_; }
    [[nodiscard]] peer_id source() const noexcept { return source_; }
    [[nodiscard]] const metrics& counts() const noexcept { return counts_; }
    [[nodiscard]] metrics& counts() noexcept { return counts_; }
    [[nodiscard]] credit_account& credits() noexcept { return credits_; }
    /// Why nothing can be sent or received any more; zero while it can.
    [[nodiscard]] std::error_code reason() const noexcept { return reason_; }
    [[nodiscard]] bool is_down() const noexcept { return phase_ == phase::down; }
    /// Whether messages may still come.
    [[nodiscard]] bool receives() const noexcept { return phase_ != phase::down && !peer_said_goodbye_; }

    /// A receive met a message that is still coming here.
    virtual void matched(unexpected_message& m, receive_request& r) noexcept = 0;
    /// A receive that is being filled is canceled.
    virtual void forget_receive(receive_request& r) noexcept = 0;
    virtual unsigned poll(unsigned budget) noexcept = 0;
    virtual void say_credit() noexcept = 0;

    /// A kept message is kept no longer: its peer may send others.
    void give_back(std::uint32_t cost) noexcept {
        credits_.release(cost);
        if (credits_.overdue()) [[unlikely]]
            say_credit();
    }

    void count_copy(std::size_t bytes) noexcept {
        ++counts_.payload_copies;
        counts_.bytes_copied += bytes;
    }
    void count_received(std::size_t bytes) noexcept {
        ++counts_.messages_received;
        counts_.bytes_received += bytes;
    }

    /// A complete kept message, out of the matcher, goes to a receive.
    static void hand_over(unexpected_message& m, receive_request& r) noexcept {
        r.got_ = {m.bytes, m.tag, m.source};
        status outcome;
        std::uint64_t info = 0;
        if (m.from != nullptr) m.from->count_received(m.bytes);
        if (r.is_lent()) {
            if (m.from != nullptr) m.from->give_back(m.cost);  // from here on it is the user's memory
            *r.loan_ = message_store::lend(m);
            r.finish({});
            return;
        }
        if (m.bytes > r.into_.size()) {
            outcome = errc::truncated;
            info = m.bytes;
        } else if (m.bytes != 0) {
            copy_in({m.payload(), m.bytes}, r.into_, 0);
            if (m.from != nullptr) m.from->count_copy(m.bytes);
        }
        if (m.from != nullptr) m.from->give_back(m.cost);
        message_store::release(m);
        r.finish(outcome, info);
    }

    /// A kept message, out of the matcher, and a receive have met.
    static void meet(unexpected_message& m, receive_request& r) noexcept {
        if (m.complete) {
            hand_over(m, r);
        } else {
            m.from->matched(m, r);
        }
    }

protected:
    connection_base(mailbox_base& box, peer_id source) noexcept
        : box_(&box),
          source_(source),
          credits_(std::max(least_budget, static_cast<std::uint32_t>(std::min<std::size_t>(
                                              box.options().unexpected_bytes / credit_bytes, 0x7fffffff)))) {}
    ~connection_base() = default;

    mailbox_base* box_;
    peer_id source_;
    phase phase_ = phase::opening;
    bool peer_said_goodbye_ = false;
    bool owes_hello_ = false;
    bool owes_credit_ = false;
    bool owes_goodbye_ = false;
    bool owes_goodbye_seen_ = false;
    std::uint8_t deferrals_ = 0;
    std::uint32_t active_sends_ = 0;
    credit_account credits_;
    metrics counts_{};
    intrusive_list<send_request> queue_;  // sends that wait for credit or room, in order
    std::error_code reason_{};
};

/// Somebody who waits for a connection to be open, or to be closed.
struct phase_waiter {
    using function = void (*)(phase_waiter& self, std::error_code outcome) noexcept;
    function reached = nullptr;
};

/// Ends when the peer has said who it is, or with the reason why it never will.
template <class Connection>
class open_operation : public basic_operation<open_operation<Connection>, void>, private phase_waiter {
public:
    explicit open_operation(Connection& of) noexcept
        : open_operation::basic_operation(&of.box().owner()), of_(of) {}
    void start() noexcept {
        reached = [](phase_waiter& self, std::error_code outcome) noexcept {
            auto& here = static_cast<open_operation&>(self);
            here.outcome_ = outcome;
            here.complete();
        };
        if (of_.is_open() || of_.is_down()) {
            reached(*this, of_.reason());
        } else {
            of_.opener() = this;
        }
    }
    void cancel() noexcept {
        of_.opener() = nullptr;
        reached(*this, make_error_code(errc::canceled));
    }
    void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
    result<void> outcome() noexcept { return outcome_; }

private:
    Connection& of_;
    std::error_code outcome_{};
};

/// A link of `Transport` whose messages travel as `Protocols` say. Also the context of the policies' engines.
template <class Transport, class Protocols>
class connection final : public connection_base {
public:
    using link_type = typename Transport::template link<connection>;

    connection(mailbox_base& box, peer_id source, typename Transport::connection made)
        : connection_base(box, source), engines_(*this), link_(std::move(made), *this) {
        owes_hello_ = true;
        say_what_is_owed();
    }
    ~connection() {
        if (phase_ != phase::down) link_.close(make_error_code(errc::closed));
        for (unexpected_message* m = box_->matching().oldest(); m != nullptr;
             m = box_->matching().after(*m)) {
            if (m->from == this) m->from = nullptr;
        }
    }

    [[nodiscard]] link_type& link() noexcept { return link_; }

    /// Moves to another mailbox, with the messages that wait; receives posted there may meet them. Precondition: no
    /// receive or probe of the old mailbox is pending.
    void move_to(mailbox_base& box, peer_id source) noexcept {
        matcher& before = std::exchange(box_, &box)->matching();
        source_ = source;
        for (unexpected_message* m = before.oldest(); m != nullptr;) {
            unexpected_message* after = before.after(*m);
            if (m->from == this) {
                before.remove(*m);
                m->source = source;
                if (receive_request* r = match(m->tag)) {
                    meet(*m, *r);
                } else {
                    box.matching().add(*m);
                }
            }
            m = after;
        }
    }

    // ---- for operations

    /// Begins a send, in its turn.
    [[gnu::always_inline]] void send(send_request& r) noexcept {
        if (phase_ != phase::open || !queue_.empty()) [[unlikely]] {
            send_later(r);
            return;
        }
        const start_result begun = begin(r);
        if (begun != start_result::begun) [[unlikely]]
            wait(r, begun);
    }

    void cancel_send(send_request& r) noexcept {
        if (r.linked()) {
            r.unlink();
            r.finish(make_error_code(errc::canceled));
            drain();
            return;
        }
        engines_.with(r.policy_, [&](auto& engine) noexcept { engine.cancel_send(r); });
    }

    void forget_receive(receive_request& r) noexcept override {
        engines_.each([&](auto& engine) noexcept { engine.forget_receive(r); });
        if (r.block_ != nullptr) message_store::release(*std::exchange(r.block_, nullptr));
    }

    void matched(unexpected_message& m, receive_request& r) noexcept override {
        count_received(0);
        engines_.with(m.policy, [&](auto& engine) noexcept { engine.matched(m, r); });
    }

    unsigned poll(unsigned budget) noexcept override { return link_.poll(budget); }

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
    void begin_close(phase_waiter& closer) noexcept {
        if (phase_ != phase::open) {
            close(make_error_code(errc::closed));
            closer.reached(closer, {});
            return;
        }
        phase_ = phase::closing;
        closer_ = &closer;
        maybe_goodbye();
    }

    /// Why the handshake failed, for people; empty when there is nothing to add.
    [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

    // ---- for policies

    [[nodiscard]] const capabilities& link_capabilities() noexcept { return link_.capabilities(); }

    template <class Policy>
    [[gnu::always_inline]] post_result post(unsigned kind, std::uint8_t flags, tag_type tag,
                                            const const_buffers& payload, send_request& r) noexcept {
        r.posted_.done = &connection::on_transmitted;
        r.posted_.self = &r;
        const std::uint16_t credits = credits_.payable();
        const wire_header h{static_cast<std::uint8_t>(Protocols::template first_kind<Policy>() + kind), flags,
                            credits, tag};
        const post_result answer = link_.post(h.store(), payload, r.posted_);
        if (answer == post_result::done || answer == post_result::posted) [[likely]]
            credits_.paid(credits);
        return answer;
    }
    template <class Policy>
    post_result post_copied(unsigned kind, std::uint8_t flags, tag_type tag,
                            std::span<const std::byte> payload) noexcept {
        return say(static_cast<std::uint8_t>(Protocols::template first_kind<Policy>() + kind), flags, tag,
                   const_buffers(payload));
    }
    /// Takes memory back from the transport. True: what was posted counts as sent. False: the link is down, and the
    /// send has ended.
    [[nodiscard]] status revoke(send_request& r) noexcept {
        if (link_.revoke(r.posted_)) return {};
        close(make_error_code(errc::no_resources));
        return errc::no_resources;
    }

    /// A send that has begun will end later, by `finish_send`.
    void under_way() noexcept { ++active_sends_; }
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

    [[nodiscard]] receive_request* match(tag_type tag) noexcept {
        return box_->matching().arrived(source_, tag);
    }

    /// Whether a message that nobody wants should be left in the network for the moment: while coroutines wait for their
    /// turn one of them may post its receive, which saves a copy.
    [[nodiscard]] bool better_later() noexcept {
        if (!box_->owner().has_ready() || deferrals_ >= most_deferrals) {
            deferrals_ = 0;
            return false;
        }
        ++deferrals_;
        return true;
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
    /// Lets receives and probes find it.
    void announce(unexpected_message& m) noexcept {
        ++counts_.unexpected;
        box_->matching().add(m);
    }
    /// A complete kept message goes to the receive that waits for it, or is announced.
    void offer(unexpected_message& m) noexcept {
        if (receive_request* r = match(m.tag)) {
            hand_over(m, *r);
        } else {
            announce(m);
        }
    }
    void hand_over(unexpected_message& m, receive_request& r) noexcept { connection_base::hand_over(m, r); }
    void free(unexpected_message& m) noexcept {
        give_back(m.cost);
        message_store::release(m);
    }
    /// Takes a message back out of the matcher.
    void withdraw(unexpected_message& m) noexcept {
        box_->matching().remove(m);
        free(m);
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

    /// A message of `bytes` will come in pieces. False: it does not fit, and the receive has ended.
    [[nodiscard]] bool begin_fill(receive_request& r, std::size_t bytes) noexcept {
        r.filling_ = this;
        if (!r.is_lent()) {
            if (bytes <= r.into_.size()) return true;
        } else if (bytes <= box_->options().lent_bytes) {
            r.block_ = box_->store().make(bytes);
            if (r.block_ != nullptr) return true;
            r.finish(make_error_code(errc::no_resources));
            return false;
        }
        r.finish(make_error_code(errc::truncated), bytes);
        return false;
    }
    [[nodiscard]] std::span<std::byte> space(receive_request& r, std::size_t at, std::size_t most) noexcept {
        const std::span<std::byte> piece = r.block_ != nullptr
                                               ? std::span<std::byte>(r.block_->payload() + at, most)
                                               : r.into_.at_offset(at);
        return piece.first(std::min(piece.size(), most));
    }
    void fill(receive_request& r, std::size_t at, std::span<const std::byte> payload) noexcept {
        if (payload.empty()) return;
        if (r.block_ != nullptr) {
            std::memcpy(r.block_->payload() + at, payload.data(), payload.size());
        } else {
            copy_in(payload, r.into_, at);
        }
        count_copy(payload.size());
    }
    /// A receive that was being filled ends without its message.
    void fail_fill(receive_request& r, std::error_code why) noexcept {
        if (r.block_ != nullptr) message_store::release(*std::exchange(r.block_, nullptr));
        r.finish(why);
    }
    void end_fill(receive_request& r, tag_type tag, std::size_t bytes) noexcept {
        count_received(bytes);
        r.got_ = {bytes, tag, source_};
        if (r.block_ != nullptr) {
            r.block_->stored = bytes;
            *r.loan_ = message_store::lend(*std::exchange(r.block_, nullptr));
        }
        r.finish({});
    }

    /// The peer broke the protocol. Ends the link.
    delivery violation() noexcept {
        close(make_error_code(errc::protocol_violation));
        return delivery::taken;
    }
    void close(std::error_code why) noexcept {
        if (phase_ != phase::down) link_.close(why);
    }

    // ---- the sink

    delivery deliver(const message_header& raw, std::span<const std::byte> payload) noexcept {
        const wire_header h = wire_header::load(raw);
        delivery answer = delivery::taken;
        if (phase_ == phase::opening) [[unlikely]] {
            hello_arrived(h, payload);
            return delivery::taken;
        }
        const bool known = engines_.dispatch(
            h.kind, [&](auto& engine, unsigned kind) noexcept { answer = engine.arrived(kind, h, payload); });
        if (!known) [[unlikely]]
            control_arrived(h, payload);
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

    void link_down(std::error_code why) noexcept {
        const bool in_good_order = peer_said_goodbye_ || phase_ == phase::closing;
        phase_ = phase::down;
        reason_ = in_good_order && why == errc::peer_lost ? make_error_code(errc::closed) : why;
        engines_.each([&](auto& engine) noexcept { engine.fail(reason_); });
        while (send_request* r = queue_.pop_front()) r->finish(reason_);
        fail_receives();
        tell(opener_, reason_);
        tell(closer_, {});
    }

    void say_credit() noexcept override {
        owes_credit_ = true;
        if (phase_ != phase::opening) say_what_is_owed();
    }

private:
    static constexpr std::uint8_t most_deferrals = 8;

    static void tell(phase_waiter*& who, std::error_code outcome) noexcept {
        if (phase_waiter* waiter = std::exchange(who, nullptr)) waiter->reached(*waiter, outcome);
    }

    static void on_transmitted(completion& c, std::error_code outcome) noexcept {
        send_request& r = *static_cast<send_request::posted_completion&>(c).self;
        auto& self = *static_cast<connection*>(r.via_);
        self.engines_.with(r.policy_, [&](auto& engine) noexcept { engine.transmitted(r, outcome); });
    }

    [[gnu::always_inline]] start_result begin(send_request& r) noexcept {
        const std::size_t policy = Protocols::choose({r.from_.size(), r.synchronous_}, link_.capabilities());
        r.via_ = this;
        r.policy_ = static_cast<std::uint8_t>(policy);
        start_result begun = start_result::begun;
        if (policy == Protocols::none) [[unlikely]] {
            r.finish(errc::message_too_long);
            return begun;
        }
        engines_.with(policy, [&](auto& engine) noexcept { begun = engine.start(r); });
        return begun;
    }

    [[gnu::noinline]] void send_later(send_request& r) noexcept {
        if (phase_ == phase::down) {
            r.finish(reason_);
        } else if (phase_ == phase::closing || peer_said_goodbye_) {
            r.finish(make_error_code(errc::closed));
        } else {
            queue_.push_back(r);
        }
    }

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
        return say(static_cast<std::uint8_t>(kind), 0, 0, {}) == post_result::done;
    }

    /// Says what belongs to no policy and could not be said before.
    void say_what_is_owed() noexcept {
        if (owes_hello_) {
            const wire_hello own{.budget = credits_.granted(), .fingerprint = Protocols::fingerprint};
            const auto fixed = own.store();
            const std::string text = Protocols::text().substr(0, wire_hello::most_text);
            const std::span<const std::byte> pieces[] = {fixed, std::as_bytes(std::span(text))};
            if (say(static_cast<std::uint8_t>(control_kind::hello), 0, 0, const_buffers(std::span(pieces))) !=
                post_result::done)
                return;
            owes_hello_ = false;
        }
        if (owes_credit_) {
            // A header gives back 65,535 at most, which may be far less than a message cost.
            while (credits_.overdue() && say(control_kind::credit)) ++counts_.credit_messages;
            owes_credit_ = credits_.overdue();
        }
        if (owes_goodbye_seen_ && say(control_kind::goodbye_seen)) owes_goodbye_seen_ = false;
        if (owes_goodbye_ && say(control_kind::goodbye)) owes_goodbye_ = false;
    }

    void maybe_goodbye() noexcept {
        if (said_goodbye_ || active_sends_ != 0 || !queue_.empty()) return;
        said_goodbye_ = true;
        owes_goodbye_ = true;
        say_what_is_owed();
    }

    void hello_arrived(const wire_header& h, std::span<const std::byte> payload) noexcept {
        const auto hello = wire_hello::load(payload);
        if (h.kind != static_cast<std::uint8_t>(control_kind::hello) || h.credits != 0 || !hello) {
            violation();
        } else if (hello->version != wire_version) {
            refusal_ = std::string("this side speaks version ") + std::to_string(wire_version) +
                       " of the wire protocol, " + link_.peer_name() + " version " +
                       std::to_string(hello->version);
            close(make_error_code(errc::version_mismatch));
        } else if (hello->fingerprint != Protocols::fingerprint) {
            const auto text = payload.subspan(wire_hello::wire_bytes);
            refusal_ = std::string("this side has the protocols \"") + Protocols::text() + "\", " +
                       link_.peer_name() + " has \"" + printable(text) + "\"";
            close(make_error_code(errc::protocol_mismatch));
        } else if (hello->budget < least_budget) {
            violation();
        } else {
            credits_.opened(hello->budget);
            phase_ = phase::open;
            tell(opener_, {});
            drain();  // what was sent before the peer had said what it grants
        }
    }

    [[nodiscard]] static std::string printable(std::span<const std::byte> raw) {
        std::string text;
        for (const std::byte b : raw) {
            const char c = static_cast<char>(b);
            text += c >= ' ' && c <= '~' ? c : '?';
        }
        return text;
    }

    [[gnu::noinline]] void control_arrived(const wire_header& h,
                                           std::span<const std::byte> payload) noexcept {
        if (!payload.empty()) {
            violation();
            return;
        }
        switch (static_cast<control_kind>(h.kind)) {
            case control_kind::credit: return;
            case control_kind::goodbye:
                if (peer_said_goodbye_) break;
                peer_said_goodbye_ = true;
                if (phase_ == phase::open) phase_ = phase::half_closed;
                owes_goodbye_seen_ = true;
                say_what_is_owed();
                while (send_request* r = queue_.pop_front()) r->finish(make_error_code(errc::closed));
                fail_receives();
                return;
            case control_kind::goodbye_seen:
                if (phase_ != phase::closing || !said_goodbye_ || owes_goodbye_) break;
                close(make_error_code(errc::closed));
                return;
            case control_kind::hello: break;
        }
        violation();
    }

    /// Nothing more comes from this peer: receives that only it could serve end.
    void fail_receives() noexcept {
        const std::error_code why = reason_ ? reason_ : make_error_code(errc::closed);
        box_->matching().take_all_of(
            source_, [&](receive_request& r) noexcept { r.finish(why); },
            [&](probe_request& p) noexcept { p.finish(why); });
    }

    [[gnu::noinline]] void fill_unusual(receive_request& r, std::span<const std::byte> payload) noexcept {
        if (r.is_lent()) {
            lend_at_once(r, payload);
        } else if (payload.size() > r.into_.size()) {
            r.finish(errc::truncated, payload.size());
        } else {
            copy_in(payload, r.into_, 0);
            count_copy(payload.size());
            r.finish({});
        }
    }
    void lend_at_once(receive_request& r, std::span<const std::byte> payload) noexcept {
        *r.loan_ = link_.keep();
        if (!*r.loan_) {
            unexpected_message* m = box_->store().make(payload.size());
            if (m == nullptr) {
                r.finish(make_error_code(errc::no_resources));
                return;
            }
            if (!payload.empty()) std::memcpy(m->payload(), payload.data(), payload.size());
            m->stored = payload.size();
            count_copy(payload.size());
            *r.loan_ = message_store::lend(*m);
        } else {
            ++counts_.lent;
        }
        r.finish({});
    }
    typename Protocols::template engines<connection> engines_;
    bool said_goodbye_ = false;
    bool draining_ = false;
    std::uint8_t incoming_ = 0;
    phase_waiter* opener_ = nullptr;
    phase_waiter* closer_ = nullptr;
    std::string refusal_;
    link_type link_;
};

}  // namespace detail
}  // namespace rdmacoro
