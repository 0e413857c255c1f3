// What policies share that send header and data in one message: all of the receiving side, and how a send ends.
#pragma once

#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <algorithm>
#include <utility>

namespace rdmacoro::detail {

/// Base of the engines of such policies. `Policy` is the one whose engine it is; it has one kind.
template <class Context, class Policy>
class eager_engine {
public:
    explicit eager_engine(Context& context) noexcept : context_(context) {}

    void transmitted(send_request& r, std::error_code outcome) noexcept { context_.finish_send(r, outcome); }

    [[gnu::always_inline]] delivery arrived(unsigned, const wire_header& h,
                                            std::span<const std::byte> payload) noexcept {
        const std::uint32_t cost = message_cost(payload.size());
        receive_request* r = context_.match(h.tag);
        if (r == nullptr) [[unlikely]]
            return keep(h.tag, payload, cost);
        if (context_.pass(cost)) [[likely]]
            context_.fill_at_once(*r, h.tag, payload);
        else
            r->finish(make_error_code(errc::protocol_violation));
        return delivery::taken;
    }

    delivery begin_payload(unsigned, const wire_header& h, std::size_t bytes) noexcept {
        const std::uint32_t cost = message_cost(bytes);
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
        message_ = context_.template keep<Policy>(h.tag, bytes, bytes, cost);
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
        } else if (unexpected_message* m = std::exchange(message_, nullptr)) {
            // A receive may have been posted since; it came after the message.
            m->stored = bytes_;
            context_.offer(*m);
        }
    }

    void matched(unexpected_message& m, receive_request& r) noexcept { context_.hand_over(m, r); }

    /// Too late to take it back: it counts as sent. The transport copies what it still needs.
    void cancel_send(send_request& r) noexcept { context_.finish_send(r, context_.revoke(r)); }

    bool forget_receive(receive_request& r) noexcept {
        if (receive_ == &r) receive_ = nullptr;
        return true;
    }
    void writable() noexcept {}
    void fail(std::error_code reason) noexcept {
        if (receive_ != nullptr) context_.fail_fill(*std::exchange(receive_, nullptr), reason);
        if (message_ != nullptr) context_.free(*std::exchange(message_, nullptr));
    }

protected:
    /// What a send becomes by its post's answer; `sent` counts it.
    [[gnu::always_inline]] start_result began(post_result answer, send_request& r, std::uint32_t cost,
                                              std::uint64_t& sent) noexcept {
        switch (answer) {
            case post_result::done:
                ++sent;
                context_.sent_at_once(r);
                return start_result::begun;
            case post_result::posted:
                ++sent;
                context_.under_way();
                return start_result::begun;
            case post_result::retry: context_.credits().untake(cost); return start_result::wait_room;
            case post_result::failed: break;
        }
        r.finish(context_.why_failed());
        return start_result::begun;
    }

    Context& context_;

private:
    [[gnu::noinline]] delivery keep(tag_type tag, std::span<const std::byte> payload,
                                    std::uint32_t cost) noexcept {
        if (context_.better_later()) return delivery::later;
        if (unexpected_message* m =
                context_.template keep<Policy>(tag, payload.size(), payload.size(), cost)) {
            std::copy(payload.begin(), payload.end(), m->payload());
            m->stored = payload.size();
            context_.count_copy(payload.size());
            context_.announce(*m);
        }
        return delivery::taken;
    }

    // The message whose payload is coming in pieces.
    receive_request* receive_ = nullptr;
    unexpected_message* message_ = nullptr;
    tag_type tag_ = 0;
    std::size_t bytes_ = 0;
    std::size_t arrived_ = 0;
};

}  // namespace rdmacoro::detail
