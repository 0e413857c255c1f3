// eager: one message with header and data; the shortest way for a short message.
//
//   sender                       receiver
//     | -- header + payload ------> |   matched: copied to its place, or lent
//     |                             |   not matched: kept, as the sender's credit pays for
#pragma once

#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <algorithm>

namespace rdmacoro {

/// Sends header and data at once. The sender pays credit for the memory that the message may take at the receiver. Does
/// not carry synchronous sends. `Limit` is `up_to<Bytes>`; left out, the transport's `eager_bytes`.
template <class Limit = up_to_transport>
struct eager {
    static constexpr std::string_view name = "eager";
    static constexpr std::string_view description =
        "header and data in one message, copied out at the receiver";
    static constexpr std::uint8_t kinds = 1;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities& link) noexcept {
        return std::min(Limit::bytes == 0 ? link.eager_bytes : Limit::bytes, link.max_message);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return !m.synchronous && m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return Limit::bytes; }

    template <class Context>
    class engine {
    public:
        explicit engine(Context& context) noexcept : context_(context) {}

        start_result start(detail::send_request& r) noexcept {
            const std::uint32_t cost = detail::message_cost(r.from_.size());
            if (!context_.credits().take(cost)) [[unlikely]]
                return start_result::wait_credit;
            switch (context_.template post<eager>(0, 0, r.tag_, r.from_, r)) {
                case post_result::done:
                    ++context_.counts().eager_sent;
                    context_.sent_at_once(r);
                    return start_result::begun;
                case post_result::posted:
                    ++context_.counts().eager_sent;
                    context_.under_way();
                    return start_result::begun;
                case post_result::retry: context_.credits().untake(cost); return start_result::wait_room;
                case post_result::failed: break;
            }
            r.finish(context_.why_failed());
            return start_result::begun;
        }

        void transmitted(detail::send_request& r, std::error_code outcome) noexcept {
            context_.finish_send(r, outcome);
        }

        delivery arrived(unsigned, const detail::wire_header& h,
                         std::span<const std::byte> payload) noexcept {
            const std::uint32_t cost = detail::message_cost(payload.size());
            detail::receive_request* r = context_.match(h.tag);
            if (r == nullptr) [[unlikely]]
                return keep(h.tag, payload, cost);
            if (context_.pass(cost)) [[likely]]
                context_.fill_at_once(*r, h.tag, payload);
            else
                r->finish(make_error_code(errc::protocol_violation));
            return delivery::taken;
        }

        delivery begin_payload(unsigned, const detail::wire_header& h, std::size_t bytes) noexcept {
            const std::uint32_t cost = detail::message_cost(bytes);
            tag_ = h.tag;
            bytes_ = bytes;
            arrived_ = 0;
            message_ = nullptr;
            receive_ = context_.match(h.tag);
            if (receive_ != nullptr) {
                if (!context_.pass(cost)) return delivery::taken;
                if (!context_.begin_fill(*receive_, bytes)) receive_ = nullptr;
                return delivery::taken;
            }
            if (context_.better_later()) return delivery::later;
            // Announced when it is complete: nobody sees half of it.
            message_ = context_.template keep<eager>(h.tag, bytes, bytes, cost);
            return delivery::taken;
        }
        std::span<std::byte> payload_space() noexcept {
            if (receive_ != nullptr) return context_.space(*receive_, arrived_, bytes_ - arrived_);
            if (message_ != nullptr) return {message_->payload() + arrived_, bytes_ - arrived_};
            return {};
        }
        void payload_arrived(std::size_t n) noexcept {
            arrived_ += n;
            if (arrived_ < bytes_) return;
            if (receive_ != nullptr) {
                context_.end_fill(*std::exchange(receive_, nullptr), tag_, bytes_);
            } else if (detail::unexpected_message* m = std::exchange(message_, nullptr)) {
                // A receive may have been posted since; it came after the message.
                m->stored = bytes_;
                context_.offer(*m);
            }
        }

        void matched(detail::unexpected_message& m, detail::receive_request& r) noexcept {
            context_.hand_over(m, r);
        }

        /// Too late to take it back: it counts as sent. The transport copies what it still needs.
        void cancel_send(detail::send_request& r) noexcept { context_.finish_send(r, context_.revoke(r)); }

        void forget_receive(detail::receive_request& r) noexcept {
            if (receive_ == &r) receive_ = nullptr;
        }
        void writable() noexcept {}
        void fail(std::error_code reason) noexcept {
            if (receive_ != nullptr) context_.fail_fill(*std::exchange(receive_, nullptr), reason);
            if (message_ != nullptr) context_.free(*std::exchange(message_, nullptr));
        }

    private:
        [[gnu::noinline]] delivery keep(tag_type tag, std::span<const std::byte> payload,
                                        std::uint32_t cost) noexcept {
            if (context_.better_later()) return delivery::later;
            if (detail::unexpected_message* m =
                    context_.template keep<eager>(tag, payload.size(), payload.size(), cost)) {
                std::copy(payload.begin(), payload.end(), m->payload());
                m->stored = payload.size();
                context_.count_copy(payload.size());
                context_.announce(*m);
            }
            return delivery::taken;
        }

        Context& context_;
        // The message whose payload is coming in pieces.
        detail::receive_request* receive_ = nullptr;
        detail::unexpected_message* message_ = nullptr;
        tag_type tag_ = 0;
        std::size_t bytes_ = 0;
        std::size_t arrived_ = 0;
    };
};

}  // namespace rdmacoro
