// connection_base: the part of a connection without the types of its transport and protocols.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/described.hpp>
#include <rdmacoro/protocol/detail/ahead_engine.hpp>
#include <rdmacoro/protocol/detail/budget_share.hpp>
#include <rdmacoro/protocol/detail/discarding_receives.hpp>
#include <rdmacoro/protocol/detail/refusal_timer.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/mailbox_base.hpp>
#include <rdmacoro/protocol/matching.hpp>
#include <rdmacoro/protocol/message_pool.hpp>
#include <rdmacoro/protocol/message_store.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/protocol/policy.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/protocol/tuning.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

namespace rdmacoro::detail {

class connection_description;

/// A caller that waits for a connection to be open, or to be closed.
struct phase_waiter {
    using function = void (*)(phase_waiter& self, std::error_code outcome) noexcept;
    function reached = nullptr;
    phase_waiter* next = nullptr;  // that waits for the same
};

/// A protocol list as a connection needs it for its handshake.
struct list_identity {
    std::uint64_t fingerprint = 0;
    std::string (*text)() = nullptr;
    /// Whether the link matches messages, and not the mailbox.
    bool link_matches = false;
    /// Whether messages may be sent ahead of their turn: both sides do not number them.
    bool overtakes = false;
    /// Whether a policy admits such a message over a link with these capabilities.
    bool (*carries)(const message_facts& m, const capabilities& link) noexcept = nullptr;
};

/// The part of a connection without the types of its transport and protocols: the handshake, goodbyes, credit, sends
/// that wait, messages on their way to a receive, and the end. It calls link and engines through virtual functions,
/// none of which is on a short message's path.
class connection_base {
public:
    connection_base(const connection_base&) = delete;
    connection_base& operator=(const connection_base&) = delete;

    /// `half_closed`: the peer has sent its goodbye; its earlier messages can still be received.
    enum class phase : std::uint8_t { opening, open, half_closed, closing, down };

    /// A piece of so many bytes takes microseconds to copy: the next one waits until everything else has had its turn.
    static constexpr std::size_t long_piece = 16 * 1024;

    [[nodiscard]] mailbox_base& mailbox() noexcept { return *mailbox_; }
    [[nodiscard]] peer_id source() const noexcept { return source_; }
    [[nodiscard]] const metrics& counts() const noexcept { return counts_; }
    [[nodiscard]] metrics& counts() noexcept { return counts_; }
    [[nodiscard]] credit_account& credits() noexcept { return credits_; }
    /// The reason of the connection's end; zero while messages can be sent or received.
    [[nodiscard]] std::error_code reason() const noexcept { return reason_; }
    /// The reason of a failed post. Posts may fail before the link reports that it is down.
    [[nodiscard]] std::error_code why_failed() const noexcept {
        if (reason_) return reason_;
        if (ending_) return ending_;
        return make_error_code(ends_in_order() ? errc::closed : errc::peer_lost);
    }
    /// Both sides know that it ends: to lose the peer now is no fault.
    [[nodiscard]] bool ends_in_order() const noexcept {
        return peer_said_goodbye_ || phase_ == phase::closing;
    }
    [[nodiscard]] bool is_down() const noexcept { return phase_ == phase::down; }
    [[nodiscard]] bool is_open() const noexcept { return phase_ == phase::open; }
    /// Its handshake has succeeded, whatever became of it since: messages may have come.
    [[nodiscard]] bool has_opened() const noexcept { return opened_; }
    [[nodiscard]] bool can_send() const noexcept { return phase_ == phase::open; }
    /// Whether messages may still come.
    [[nodiscard]] bool receives() const noexcept { return receives_; }
    /// Why no message can come any more. `peer_id`: as a receiving operation's poller.
    [[nodiscard]] status why_not_from(peer_id) const noexcept {
        if (receives()) [[likely]]
            return {};
        return reason_ ? status(reason_) : status(errc::closed);
    }
    /// The peer's name, for errors.
    [[nodiscard]] const noted_peer& own_name() const noexcept { return own_name_; }
    /// Why the handshake failed, for people; empty when there is nothing to add.
    [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

    // ---- the link and the engines

    /// A receive has matched a message that is still coming here.
    virtual void matched(unexpected_message& m, receive_request& r) noexcept = 0;
    /// A receive that is being filled is canceled. False: its memory is not free yet, and it ends later.
    [[nodiscard]] virtual bool forget_receive(receive_request& r) noexcept = 0;
    /// Whether receives are posted with the link, and not in the mailbox.
    [[nodiscard]] virtual bool has_receives() noexcept { return false; }
    virtual unsigned poll(unsigned budget) noexcept = 0;
    [[nodiscard]] virtual std::string peer_name() const = 0;
    /// The link's capabilities, with the limits of this run.
    [[nodiscard]] virtual const capabilities& capabilities_in_force() const noexcept = 0;
    /// Posts a message of a policy, by its number on the wire. `begins`: it is the first of a message to be matched.
    virtual post_result post_kind(std::uint8_t kind, std::uint8_t flags, tag_type tag,
                                  const const_buffers& payload, send_request& r, bool begins) noexcept = 0;
    /// The same for a few bytes that are copied.
    post_result post_copied_kind(std::uint8_t kind, std::uint8_t flags, tag_type tag,
                                 std::span<const std::byte> payload, bool begins) noexcept;

    // ---- for operations

    /// Withdraws a send: from the queue, or from its engine.
    void cancel_send(send_request& r) noexcept;
    /// Notified when the connection is open, or down before that.
    [[nodiscard]] phase_waiter*& opener() noexcept { return opener_; }
    /// Sends a goodbye once everything else is sent; notifies `closer` when the peer has seen it, or the link is down. Several wait for the same.
    void begin_close(phase_waiter& closer) noexcept;
    void close(std::error_code why) noexcept;
    /// Moves to another mailbox, with the messages stored in this one; receives posted there may match them. Precondition: no
    /// receive or probe of the old mailbox is pending.
    void move_to(mailbox_base& box, peer_id source) noexcept;

    // ---- credit

    /// Sends what is owed. Of a link that is down: its share of the pool shrinks by it.
    void send_credit() noexcept;
    /// A stored message is free: the peer may send others.
    void give_back(std::uint32_t cost) noexcept {
        credits_.release(cost);
        if (credits_.overdue()) [[unlikely]]
            send_credit();
    }
    /// A message that matched a receive at once. False: its sender had no credit for it, and the link is down.
    [[nodiscard, gnu::always_inline]] bool pass(std::uint32_t cost) noexcept {
        if (!credits_.pass(cost)) [[unlikely]] {
            violation();
            return false;
        }
        if (credits_.overdue()) [[unlikely]]
            send_credit();
        return true;
    }

    void count_copy(std::size_t bytes) noexcept {
        ++counts_.payload_copies;
        counts_.bytes_copied += bytes;
    }
    void count_received(std::size_t bytes) noexcept {
        ++counts_.messages_received;
        counts_.bytes_received += bytes;
    }

    /// Numbers what its users send, from 1 on: of all objects that use it one after the other none takes another one's number.
    [[nodiscard]] std::uint64_t next_number() noexcept { return ++last_number_; }

    // ---- sends, for policies

    /// A send that has begun will end later, by `finish_send`; or something must be sent before a goodbye, until `settled`.
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
    /// A condition of the policy's own that made sends wait is over.
    void room_for_sends() noexcept {
        if (!queue_.empty() && !draining_) drain();
    }
    /// Takes memory back from the transport. Zero: the posted message counts as sent. Otherwise the link is down, and
    /// the send has ended.
    [[nodiscard]] status revoke(send_request& r) noexcept;

    // ---- messages on their way to a receive, for policies

    [[nodiscard]] receive_request* match(tag_type tag) noexcept {
        return mailbox_->matching().arrived(source_, tag);
    }
    /// `match` for engines that are not templates: counted, and an announced receive is noted as superseded.
    [[nodiscard]] receive_request* match_counted(tag_type tag) noexcept;

    // The order of messages, by which announcements are numbered: each side counts the messages of a direction alike, the
    // sender when the first message of a policy (its kind 0) is posted, the receiver when it is matched or stored.
    void message_seen() noexcept { ++messages_seen_; }
    [[nodiscard]] std::uint64_t messages_seen() const noexcept { return messages_seen_; }

    /// Whether a message without a receive should be left in the network for the moment: while coroutines wait for their
    /// turn one of them may post its receive, which saves a copy.
    [[nodiscard]] bool better_to_defer() noexcept;

    /// Room for a message of `bytes`, of which up to `room` come unasked. Not in the matcher yet. nullptr: the link is down.
    [[nodiscard]] unexpected_message* keep_message(std::size_t policy, tag_type tag, std::size_t bytes,
                                                   std::size_t room, std::uint32_t cost) noexcept;
    /// Lets receives and probes find it.
    void announce(unexpected_message& m) noexcept;
    /// A complete stored message goes to the receive that waits for it, or is announced.
    void offer(unexpected_message& m) noexcept;
    void free(unexpected_message& m) noexcept;
    /// The payload of a message that is in the matcher, and of which only the beginning was stored, is here: it is stored
    /// whole from now on, in its place. False: memory is short.
    [[nodiscard]] bool complete(unexpected_message& m, std::span<const std::byte> payload) noexcept;
    /// Takes a message back out of the matcher.
    void withdraw(unexpected_message& m) noexcept {
        mailbox_->matching().remove(m);
        free(m);
    }
    /// The link is down, and the rest of a stored message will not come. It keeps its place: the receive that meets it ends with the
    /// link's reason, and none gets a later message in its stead. Receives from any source pass it by where the link was closed: that
    /// this side closed one peer ends none of them.
    void lose(unexpected_message& m) noexcept;
    /// The same for a message that is not in the matcher yet, and in its turn now: a receive may wait for it.
    void lose_unannounced(unexpected_message& m) noexcept;

    /// The one place where a receive ends that has matched a message. A message that its receive could not take, as it was
    /// too long or was given up, does not count as received. `from`: its connection; nullptr when that no longer exists.
    [[gnu::always_inline]] static void end_receive(connection_base* from, receive_request& r,
                                                   const received& message, status outcome = {}) noexcept {
        if (outcome) [[unlikely]] {
            end_unreceived(from, r, message.bytes, message.tag, outcome);
            return;
        }
        if (from != nullptr) from->count_received(message.bytes);
        r.got_ = message;
        r.finish({});
    }
    /// A complete stored message, out of the matcher, goes to a receive.
    static void hand_over(unexpected_message& m, receive_request& r) noexcept;
    /// A stored message, out of the matcher, and a receive match.
    static void match(unexpected_message& m, receive_request& r) noexcept {
        if (m.complete) {
            hand_over(m, r);
        } else {
            m.from->matched(m, r);
        }
    }

    /// A whole message for a receive.
    [[gnu::always_inline]] void fill_at_once(receive_request& r, tag_type tag,
                                             std::span<const std::byte> payload) noexcept {
        if (r.is_special() || payload.size() > r.into_.size() || !r.into_.contiguous()) [[unlikely]] {
            fill_unusual(r, tag, payload);
            return;
        }
        copy_bytes(r.into_.front().data(), payload.data(), payload.size());
        count_copy(payload.size());
        end_receive(this, r, {payload.size(), tag, source_});
    }
    /// A message of `bytes` will come in pieces. False: it does not fit, and the receive has ended; `tag` is told by its error.
    [[nodiscard]] bool begin_fill(receive_request& r, std::size_t bytes, tag_type tag = 0) noexcept;
    [[nodiscard]] std::span<std::byte> space(receive_request& r, std::size_t at, std::size_t most) noexcept;
    /// Where all of its `bytes` go, at least. Precondition: `begin_fill` answered true.
    [[nodiscard]] mutable_buffers destination(receive_request& r, std::size_t bytes) noexcept;
    void fill(receive_request& r, std::size_t at, std::span<const std::byte> payload) noexcept;
    /// A receive that was being filled ends without its message.
    void fail_fill(receive_request& r, std::error_code why) noexcept { end_unreceived(this, r, 0, 0, why); }
    void end_fill(receive_request& r, tag_type tag, std::size_t bytes) noexcept;

    /// A control message takes effect.
    void obey(const wire_header& h) noexcept;

    /// The peer broke the protocol. Ends the link.
    delivery violation() noexcept;

    // ---- the part of the link's sink that is the same for all

    void writable() noexcept;
    void link_down(std::error_code why) noexcept;

protected:
    friend class ahead_engine;

    /// The events that engines are notified of.
    enum class engine_event : std::uint8_t {
        writable,   ///< the transport has room again
        closing,    ///< this side has begun to close
        failed,     ///< the link is down
        peer_left,  ///< the peer has sent its goodbye
        moved       ///< the connection belongs to another mailbox
    };

    connection_base(mailbox_base& box, peer_id source, const list_identity& list) noexcept;
    ~connection_base() = default;

    // The link and the engines, as this class needs them.
    virtual post_result post_raw(const message_header& header, const const_buffers& payload) noexcept = 0;
    [[nodiscard]] virtual bool revoke_posted(completion& c) noexcept = 0;
    [[nodiscard]] virtual lent_buffer lend_payload() noexcept = 0;
    virtual void close_link(std::error_code why) noexcept = 0;
    virtual void notify_engines(engine_event what, std::error_code reason) noexcept = 0;
    /// Begins a send that has waited.
    virtual start_result begin_queued(send_request& r) noexcept = 0;
    virtual void cancel_in_engine(send_request& r) noexcept = 0;
    // Of lists that announce receives, or leave matching to the link.
    virtual void note_begun(tag_type) noexcept {}
    virtual void note_superseded(receive_request&) noexcept {}
    [[nodiscard]] virtual std::uint64_t posted_with_link() noexcept { return 0; }
    [[nodiscard]] virtual bool last_word(const wire_header&) noexcept { return false; }
    /// Names the parties that move the link on, and describes what the engines hold.
    virtual void describe_engines(connection_description& into) noexcept = 0;

    /// The link is connected: the handshake begins. `link`: its capabilities.
    /// Sends its hello, unless it `answers`: then when the peer's has come.
    void begin_handshake(const capabilities& link, bool answers);
    /// The connection ends. To be called by the destructor of the derived class.
    void disown() noexcept;
    void hello_arrived(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery control_arrived(const wire_header& h, std::span<const std::byte> payload) noexcept;
    /// Queues a send that must wait for earlier sends or the handshake, or fails it when it cannot be sent any more.
    void send_later(send_request& r) noexcept;
    void wait(send_request& r, start_result why) noexcept;
    /// Begins the waiting sends, in order, until one must wait again. What is more than a few is done in the turns that follow.
    void drain() noexcept;
    void go_on_later() noexcept;
    void go_on() noexcept;
    /// The peer gave credit back while sends wait.
    void credit_came() noexcept;
    [[gnu::always_inline]] void header_taken(const wire_header& h) noexcept {
        if (h.credits == 0 || phase_ == phase::down) return;
        if (!credits_.returned(h.credits)) [[unlikely]] {
            violation();
        } else if (!queue_.empty()) [[unlikely]] {
            credit_came();
        }
    }

    mailbox_base* mailbox_;
    peer_id source_;
    phase phase_ = phase::opening;
    bool receives_ = true;  // neither down nor left by the peer
    bool opened_ = false;
    bool peer_said_goodbye_ = false;
    bool answers_ = false;  // the peer's hello is to come first
    bool owes_hello_ = false;
    bool owes_credit_ = false;
    bool owes_goodbye_ = false;
    bool owes_goodbye_seen_ = false;
    bool owes_starved_ = false;
    bool starved_ = false;       // what the first of the waiting sends waits for is the peer's to give
    bool said_starved_ = false;  // and neither credit nor a question has come since
    std::uint8_t deferrals_ = 0;
    std::uint32_t active_sends_ = 0;
    credit_account credits_{0};
    metrics counts_{};
    ahead_engine ahead_{*this};
    intrusive_list<send_request> queue_;    // sends that wait for credit or room, in order
    const capabilities* limits_ = nullptr;  // `tuned_`, when this run or the peer's budget sets limits
    std::uint64_t messages_seen_ = 0;       // of the peer
    receive_request* leaving_ = nullptr;    // matched by the message at hand while it was being canceled
    std::error_code reason_{};
    std::uint64_t last_number_ = 0;  // of `next_number`

private:
    post_result post_word(std::uint8_t kind, std::uint8_t flags, tag_type tag,
                          const const_buffers& payload) noexcept;
    [[nodiscard]] bool send_word(control_kind kind) noexcept;
    [[nodiscard]] bool send_hello() noexcept;
    /// Sends the owed control messages that belong to no policy.
    void send_owed() noexcept;
    /// The peer's budget is known: a message that costs more than a quarter of it goes by a policy that does not send all
    /// of it unasked, or, where the list has none, only if the whole budget pays for it.
    void limit_unasked();
    /// The first of the waiting sends waits for credit, or for the peer to receive.
    void starve() noexcept;
    /// The peer's does.
    void peer_starved() noexcept;
    /// The grant follows what the peer uses and what the pool has. `starving`: the peer waits for more.
    void regrant(bool starving) noexcept;
    /// Other links want more of the pool: asks a peer that is idle for what it does not use.
    void short_of_memory() noexcept;
    void recall_arrived(const wire_header& h) noexcept;
    void feed() noexcept;
    void feed_now() noexcept;
    void feed_again() noexcept;
    [[nodiscard]] std::uint64_t received_so_far() const noexcept {
        return counts_.messages_received + counts_.unexpected;
    }
    void maybe_goodbye() noexcept;
    [[nodiscard]] bool hides(const unexpected_message& m) const noexcept {
        return m.lost && reason_ == errc::closed;
    }
    void refuse(errc why, std::uint32_t version, std::span<const std::byte> list) noexcept;
    /// The peer sends nothing more: ends the receives that only it could serve.
    void fail_receives() noexcept;
    void fill_unusual(receive_request& r, tag_type tag, std::span<const std::byte> payload) noexcept;
    /// The part of `end_receive` for failures. `bytes`, `tag`: the message's, which a truncated receive reports.
    static void end_unreceived(connection_base* from, receive_request& r, std::size_t bytes, tag_type tag,
                               status outcome) noexcept;
    static void notify(phase_waiter*& waiter, std::error_code outcome) noexcept;
    static void describe(void* self, description& into) noexcept;
    void describe_own(connection_description& into) noexcept;

    static constexpr std::uint8_t most_deferrals = 8;
    /// Waiting sends that one call begins.
    static constexpr unsigned most_begun = 64;
    /// How long credit that a waiting peer is owed may be gathered.
    static constexpr duration gathering = std::chrono::milliseconds(1);

    /// Time without a message after which a peer is asked to give back unused credit.
    static constexpr duration long_idle = std::chrono::milliseconds(100);
    /// Interval at which the others are asked again while one peer has no credit and the pool has none left: doubled each time that nothing
    /// came of it, up to the second one, as a thousand such peers would take a processor.
    static constexpr duration ask_again = std::chrono::milliseconds(20);
    static constexpr unsigned most_doublings = 4;

    budget_share share_;  // of which `credits_` are granted
    refusal_timer feeding_;
    refusal_timer rest_;                                      // of what would take too long in one turn
    time_point idle_since_{};                                 // as seen when memory was short
    std::uint64_t received_before_ = 0;                       // messages, when memory was short last
    std::uint32_t charged_when_starved_ = ~std::uint32_t{0};  // units, when the peer said so last
    std::uint32_t asked_back_ = 0;                            // units of credit; until the peer's answer
    unsigned asked_in_vain_ = 0;
    std::uint32_t given_up_ = 0;  // units, as the answer to the peer's question
    bool owes_recall_ = false;
    bool owes_given_up_ = false;
    bool sent_goodbye_ = false;
    bool draining_ = false;
    bool sends_first_ = false;  // at the next `writable`
    list_identity list_;
    std::error_code ending_{};  // why this side is closing the link
    phase_waiter* opener_ = nullptr;
    phase_waiter* closer_ = nullptr;
    std::string refusal_;
    noted_peer own_name_{};
    capabilities tuned_{};
    described described_{this, &connection_base::describe};
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/ahead_engine.ipp>
#include <rdmacoro/protocol/impl/connection_base.ipp>
#include <rdmacoro/protocol/impl/connection_messages.ipp>
#include <rdmacoro/protocol/impl/mailbox_base.ipp>
#include <rdmacoro/protocol/impl/requests.ipp>
#endif
