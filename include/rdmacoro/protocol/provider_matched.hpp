// provider_matched: messages are matched by the transport, not by the mailbox.
//
//   sender                              receiver
//     | == tagged message ==============> |   matched by the link with a receive that was posted with it,
//     |                                   |   or claimed by the mailbox for a receive, a probe, a lent message
//     | <-------------------- matched --- |   of a long or synchronous one: it has matched its receive
//
//   canceled:  | -- withdraw -> |  <- withdrawn --, or <- matched --, after which | -- settled -> |
#pragma once

#include <rdmacoro/protocol/detail/matched_receiver.hpp>
#include <rdmacoro/protocol/detail/matched_sender.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro {

/// Hands messages and receives to a link that matches by itself (`matching_link`): how a long message travels and where
/// an early one waits is decided by the transport. Stands alone in its list. Everything that endpoints and mailboxes promise
/// holds: order, credit, probes, lent messages, cancellation, a close that drains.
///
/// A receive from one peer is posted with its link. A probe, a receive of a lent message, a receive from any source of
/// a mailbox, and one into more pieces of memory than the link takes can't be: while such a one waits, the mailbox
/// claims the messages that no posted receive takes, in the order sent, and matches them itself with it and with all
/// later receives. Short claimed messages without a receive are fetched, long ones stay where they are.
///
/// A synchronous send, and one that is longer than the transport takes over by itself, ends with the receiver's answer.
/// It can be canceled until it is matched, and so can a receive.
struct provider_matched {
    static constexpr std::string_view name = "provider_matched";
    static constexpr std::string_view description = "matched and carried by the transport";
    static constexpr std::uint8_t kinds = 4;
    static constexpr bool delegates = true;  ///< matching is the link's

    [[nodiscard]] static constexpr std::size_t longest(const capabilities&) noexcept {
        return static_cast<std::size_t>(-1);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts&, const capabilities&) noexcept {
        return true;
    }
    /// Both ends reckon alike what a message costs.
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return detail::claim_overhead; }

    template <class Context>
    class engine {
    public:
        explicit engine(Context& context) noexcept
            : context_(context), sender_(context), receiver_(context) {}

        // ---- the functions of every engine

        start_result start(detail::send_request& r) noexcept { return sender_.start(r); }
        void transmitted(detail::send_request& r, std::error_code outcome) noexcept {
            sender_.transmitted(r, outcome);
        }
        void cancel_send(detail::send_request& r) noexcept { sender_.cancel(r); }

        delivery arrived(unsigned kind, const detail::wire_header& h,
                         std::span<const std::byte> payload) noexcept {
            const bool good =
                payload.empty() && h.tag <= 0xffffffff && obey(kind, static_cast<std::uint32_t>(h.tag));
            return good ? delivery::taken : context_.violation();
        }
        delivery begin_payload(unsigned, const detail::wire_header&, std::size_t) noexcept {
            return context_.violation();  // it has only control messages
        }
        std::span<std::byte> payload_space() noexcept { return {}; }
        void payload_arrived(std::size_t) noexcept {}

        void matched(detail::unexpected_message& m, detail::receive_request& r) noexcept {
            receiver_.matched(m, r);
        }
        bool forget_receive(detail::receive_request& r) noexcept { return receiver_.forget(r); }
        void writable() noexcept {
            sender_.writable();
            receiver_.writable();
        }
        void fail(std::error_code reason) noexcept {
            sender_.fail(reason);
            receiver_.fail(reason);
        }
        /// Adds the operations that it holds.
        void describe(detail::connection_description& into) noexcept {
            sender_.describe(into);
            receiver_.describe(into);
        }

        // ---- the functions of a list that leaves matching to the link

        /// A receive begins: it is posted with the link, or with the mailbox.
        void receive(detail::receive_request& r) noexcept { receiver_.receive(r); }
        /// A receive or probe waits in the mailbox that may match messages from here.
        void look() noexcept { receiver_.look(); }
        /// Whether receives are with the link.
        [[nodiscard]] bool has_receives() const noexcept { return receiver_.has_posted(); }
        /// Messages that have been posted, ever.
        [[nodiscard]] std::uint64_t posted() const noexcept { return sender_.posted(); }
        /// A goodbye or its answer came; `context.obey` is called when everything before it is here. False: it was one
        /// too many.
        [[nodiscard]] bool last_word(const detail::wire_header& h) noexcept { return receiver_.last_word(h); }
        /// Everything the peer ever sent is here.
        void peer_leaves() noexcept { receiver_.peer_leaves(); }

        detail::matched_sender<Context, provider_matched>& sender() noexcept { return sender_; }
        detail::matched_receiver<Context, provider_matched>& receiver() noexcept { return receiver_; }

    private:
        bool obey(unsigned kind, std::uint32_t note) noexcept {
            switch (static_cast<detail::matched_word>(kind)) {
                case detail::matched_word::matched: return sender_.answered(note, false);
                case detail::matched_word::withdrawn: return sender_.answered(note, true);
                case detail::matched_word::withdraw: return receiver_.withdraw_asked(note);
                case detail::matched_word::settled: receiver_.settled(note); return true;
            }
            return false;
        }

        Context& context_;
        detail::matched_sender<Context, provider_matched> sender_;
        detail::matched_receiver<Context, provider_matched> receiver_;
    };
};

}  // namespace rdmacoro
