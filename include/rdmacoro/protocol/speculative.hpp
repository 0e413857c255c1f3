// speculative: the receiver announces its buffer before the sender asks.
//
//   sender                                  receiver
//     | <-- announce (destination's region) - |   a long receive is posted, its message has not come
//     | -- claim ---------------------------> |   the message takes the receive
//     | =============== put ================> |
//     | -- finish --------------------------> |
//
//   crossing:            | -- request ---> <--- announce -- |   the sender drops the announcement; the fallback goes on
//   guessed wrong:       | -- eager data -----------------> |   likewise
//   receive canceled:    | <-- withdraw -- | -- withdrawn -> |   or, once claimed:  | <-- revoke -- | -- finish -> |
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>
#include <rdmacoro/protocol/detail/speculation_receiver.hpp>
#include <rdmacoro/protocol/detail/speculation_sender.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>

#include <span>

namespace rdmacoro {

namespace detail {
template <template <class, class> class>
struct engine_for_another;
/// A policy of which another one can have the engine: `engine<Context, Policy>` sends by the kinds of messages of `Policy`.
template <class Policy>
concept policy_for_another = requires { typename engine_for_another<Policy::template engine>; };
}  // namespace detail

/// Carries the same messages as `Fallback`. A receive with an exact tag, from one peer, with a buffer as long as the
/// messages that this policy carries, is announced when it is posted; the sender of the message that will match the
/// receive puts the message there without asking. So a receiver that computes between `start(recv)` and its await gets
/// the data meanwhile. Which message that is follows from sequence numbers (detail/speculation_wire.hpp). Receives that
/// take any tag or any source are never announced, nor receives behind a posted one that might take their message or behind
/// more than 64 of their tag.
/// Announcing stops and begins again as it pays.
///
/// Source: the receiver-initiated rendezvous of Rashti and Afsahi (2009), with sequence numbers instead of its
/// acknowledgements and flags.
template <class Fallback = get_rendezvous<>>
struct speculative {
    static_assert(detail::policy_for_another<Fallback>,
                  "the fallback of speculative has to be a rendezvous: get_rendezvous, put_rendezvous, "
                  "cooperative_rendezvous, staged_get, or one of yours with engine<Context, Policy>");

    static constexpr std::string_view name = "speculative";
    static constexpr std::string_view description =
        "put into a buffer that was announced; else as the fallback of this policy";
    static constexpr std::uint8_t kinds = Fallback::kinds + detail::speculation_kinds;
    static constexpr std::uint64_t metrics::* sent_counter = &metrics::speculative_sent;
    static constexpr bool needs_one_sided = true;
    static constexpr bool speculates = true;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities& link) noexcept {
        return Fallback::longest(link);
    }
    [[nodiscard]] static constexpr std::size_t shortest(const capabilities& link) noexcept {
        return Fallback::shortest(link);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return Fallback::admits(m, link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept {
        return detail::fingerprint_of(Fallback::name) ^ Fallback::parameter();
    }

    [[nodiscard]] static std::string text() {
        return std::string(name) + "<" + detail::policy_text<Fallback>() + ">";
    }

    template <class Context>
    class engine {
    public:
        explicit engine(Context& context) noexcept
            : context_(context),
              fallback_(context),
              out_(context_, first, sent_counter),
              in_(context_, first) {}

        start_result start(detail::send_request& r) noexcept {
            start_result answer = start_result::begun;
            if (out_.start(r, answer)) return answer;
            return fallback_.start(r);
        }
        void cancel_send(detail::send_request& r) noexcept {
            if (out_.claimed(r)) {
                out_.cancel(r);
            } else {
                fallback_.cancel_send(r);
            }
        }
        void transmitted(detail::send_request& r, std::error_code outcome) noexcept {
            fallback_.transmitted(r, outcome);
        }

        delivery arrived(unsigned kind, const detail::wire_header& h,
                         std::span<const std::byte> payload) noexcept {
            if (kind < Fallback::kinds) {
                asks_ = true;
                const delivery answer = fallback_.arrived(kind, h, payload);
                asks_ = false;
                return answer;
            }
            switch (kind - Fallback::kinds) {
                case detail::speculation_announce: return out_.announced(h, payload);
                case detail::speculation_claim:
                    if (!in_.claimed(h, payload)) return context_.violation();
                    context_.context().message_seen();
                    return delivery::taken;
                case detail::speculation_finish: return in_.finished(h, payload);
                case detail::speculation_withdraw: return out_.withdrawn(h, payload);
                case detail::speculation_withdrawn: return in_.withdrawn(h, payload);
                default: return out_.revoked(h, payload);
            }
        }
        delivery begin_payload(unsigned kind, const detail::wire_header& h, std::size_t bytes) noexcept {
            return fallback_.begin_payload(kind, h, bytes);
        }
        std::span<std::byte> payload_space() noexcept { return fallback_.payload_space(); }
        void payload_arrived(std::size_t n) noexcept { fallback_.payload_arrived(n); }

        void matched(detail::unexpected_message& m, detail::receive_request& r) noexcept {
            fallback_.matched(m, r);
        }
        bool forget_receive(detail::receive_request& r) noexcept {
            const bool now = in_.forget(r);
            return fallback_.forget_receive(r) && now;
        }
        void writable() noexcept {
            fallback_.writable();
            out_.writable();
            in_.writable();
        }
        void fail(std::error_code reason) noexcept {
            out_.fail(reason);
            in_.fail(reason);
            fallback_.fail(reason);
        }
        /// Adds the operations that it holds.
        void describe(detail::connection_description& into) noexcept {
            out_.describe(into);
            in_.describe(into);
            fallback_.describe(into);
        }

        // ---- for the connection

        /// Every message of this side, when it is posted.
        void begun(tag_type tag) noexcept { out_.begun(tag); }
        /// A receive was posted, and its message has not come.
        void posted(detail::receive_request& r) noexcept {
            if (!r.wanted_.exact() || r.source_ == any_source || r.is_lent() || r.into_.empty()) return;
            Context& connection = context_.context();
            if (connection.speculates_on(r.into_.size()) && connection.can_send())
                in_.posted(r, connection.messages_seen());
        }
        /// A message matches a receive that was announced, or might have been.
        void superseded(detail::receive_request& r) noexcept { in_.superseded(r, asks_); }
        /// A posted receive is canceled. False: it ends later.
        [[nodiscard]] bool cancel_posted(detail::receive_request& r) noexcept { return in_.cancel(r); }
        /// The peer has sent goodbye.
        void peer_leaves() noexcept {
            in_.forget_announced();
            out_.forget_offers();
        }
        /// Internal: whether an announced buffer may take a message with this tag.
        [[nodiscard]] bool may_use(tag_type tag) noexcept { return out_.may_use(tag); }

    private:
        static constexpr unsigned first = Fallback::kinds;

        detail::rendezvous_context_of<Context, speculative> context_;
        typename Fallback::template engine<Context, speculative> fallback_;
        detail::speculation_sender out_;
        detail::speculation_receiver in_;
        bool asks_ = false;  // a message of the fallback is being looked at
    };
};

}  // namespace rdmacoro
