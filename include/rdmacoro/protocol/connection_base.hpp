// connection_base: what a connection is without the types of its transport and protocols, and what connections share.
#pragma once

#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/matching.hpp>
#include <rdmacoro/protocol/message_store.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/protocol/tuning.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace rdmacoro {

/// How much an endpoint or mailbox may keep.
struct mailbox_options {
    /// For each peer, memory for messages that come before their receive, in bytes; at least 256 KiB.
    std::size_t unexpected_bytes = 4u << 20;
    /// Longest message that a lent receive accepts, in bytes.
    std::size_t lent_bytes = 64u << 20;
    /// How long a new peer may take to say who it is.
    duration handshake_limit = std::chrono::seconds(10);
    /// Limits of protocols that this run sets; what is unset here is taken from the environment.
    tuning limits{};
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

/// Somebody who waits for a connection to be open, or to be closed.
struct phase_waiter {
    using function = void (*)(phase_waiter& self, std::error_code outcome) noexcept;
    function reached = nullptr;
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
    /// Why a post failed. The link may know before it says that it is down.
    [[nodiscard]] std::error_code why_failed() const noexcept {
        if (reason_) return reason_;
        return ending_ ? ending_ : make_error_code(errc::peer_lost);
    }
    [[nodiscard]] bool is_down() const noexcept { return phase_ == phase::down; }
    /// Whether messages may still come.
    [[nodiscard]] bool receives() const noexcept { return phase_ != phase::down && !peer_said_goodbye_; }

    /// A receive met a message that is still coming here.
    virtual void matched(unexpected_message& m, receive_request& r) noexcept = 0;
    /// A receive that is being filled is canceled. False: its memory is not free yet, and it ends later.
    [[nodiscard]] virtual bool forget_receive(receive_request& r) noexcept = 0;
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

    // ---- messages on their way to a receive, for policies

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

    /// Lets receives and probes find it.
    void announce(unexpected_message& m) noexcept {
        ++counts_.unexpected;
        box_->matching().add(m);
    }
    /// A complete kept message goes to the receive that waits for it, or is announced.
    void offer(unexpected_message& m) noexcept {
        m.source = source_;  // we may have moved to another mailbox since it began
        if (receive_request* r = match(m.tag)) {
            hand_over(m, *r);
        } else {
            announce(m);
        }
    }
    void free(unexpected_message& m) noexcept {
        give_back(m.cost);
        message_store::release(m);
    }
    /// The payload of a message that is in the matcher, and of which only the beginning was kept, is here: it is kept
    /// whole from now on, in its place. False: memory is short.
    [[nodiscard]] bool complete(unexpected_message& m, std::span<const std::byte> payload) noexcept {
        unexpected_message* whole = box_->store().make(payload.size());
        if (whole == nullptr) return false;
        whole->from = m.from;
        whole->source = m.source;
        whole->cost = m.cost;
        whole->tag = m.tag;
        whole->bytes = whole->stored = payload.size();
        whole->policy = m.policy;
        box_->matching().replace(m, *whole);
        message_store::release(m);
        if (payload.empty()) return true;
        std::memcpy(whole->payload(), payload.data(), payload.size());
        count_copy(payload.size());
        return true;
    }
    /// Takes a message back out of the matcher.
    void withdraw(unexpected_message& m) noexcept {
        box_->matching().remove(m);
        free(m);
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
    /// Where all of its `bytes` go, at least. Precondition: `begin_fill` answered true.
    [[nodiscard]] mutable_buffers destination(receive_request& r, std::size_t bytes) noexcept {
        if (r.block_ != nullptr) return std::span<std::byte>(r.block_->payload(), bytes);
        return r.into_;
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

protected:
    connection_base(mailbox_base& box, peer_id source) noexcept
        : box_(&box),
          source_(source),
          credits_(std::max(least_budget, static_cast<std::uint32_t>(std::min<std::size_t>(
                                              box.options().unexpected_bytes / credit_bytes, 0x7fffffff)))) {}
    ~connection_base() = default;

    /// Nothing more comes from this peer: receives that only it could serve end.
    void fail_receives() noexcept {
        const std::error_code why = reason_ ? reason_ : make_error_code(errc::closed);
        box_->matching().take_all_of(
            source_, [&](receive_request& r) noexcept { r.finish(why); },
            [&](probe_request& p) noexcept { p.finish(why); });
    }
    static void tell(phase_waiter*& who, std::error_code outcome) noexcept {
        if (phase_waiter* waiter = std::exchange(who, nullptr)) waiter->reached(*waiter, outcome);
    }

    static constexpr std::uint8_t most_deferrals = 8;

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
    std::error_code ending_{};  // what we are closing the link with
};

}  // namespace detail
}  // namespace rdmacoro
