// The part that policies share that send header and data in one message: all of the receiving side, and how a send ends.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// The part of `eager_engine` beside a short message's path, compiled once for all links and lists.
class eager_engine_base {
public:
    eager_engine_base(const eager_engine_base&) = delete;
    eager_engine_base& operator=(const eager_engine_base&) = delete;

    void transmitted(send_request& r, std::error_code outcome) noexcept {
        r.unlink();
        base_.finish_send(r, outcome);
    }

    delivery begin_payload(unsigned kind, const wire_header& h, std::size_t bytes) noexcept;
    std::span<std::byte> payload_space() noexcept;
    void payload_arrived(std::size_t n) noexcept;

    void matched(unexpected_message& m, receive_request& r) noexcept { connection_base::hand_over(m, r); }

    /// It is too late to take the message back: it counts as sent. The transport copies the bytes that are not sent
    /// yet.
    void cancel_send(send_request& r) noexcept;

    bool forget_receive(receive_request& r) noexcept {
        if (receive_ == &r) receive_ = nullptr;
        return true;
    }
    void writable() noexcept {}
    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

protected:
    /// The link has the send's memory, until `transmitted`.
    void posted(send_request& r) noexcept {
        r.in_flight_ = true;
        r.since_ = base_.mailbox().owner().coarse_now().time_since_epoch().count();
        posted_.push_back(r);
    }

    eager_engine_base(connection_base& context, std::size_t policy) noexcept
        : base_(context), policy_(policy) {}

    /// A message without a receive: stored, or left in the network for the moment.
    delivery store(tag_type tag, std::span<const std::byte> payload, std::uint32_t cost) noexcept;

private:
    connection_base& base_;
    std::size_t policy_;
    intrusive_list<send_request> posted_;
    // The message with a payload that is arriving in pieces.
    receive_request* receive_ = nullptr;
    unexpected_message* message_ = nullptr;
    tag_type tag_ = 0;
    std::size_t bytes_ = 0;
    std::size_t arrived_ = 0;
};

/// Base of the engines of such policies. `Policy` is the engine's policy; it has one kind.
template <class Context, class Policy>
class eager_engine : public eager_engine_base {
public:
    explicit eager_engine(Context& context) noexcept
        : eager_engine_base(context, Context::template index_of<Policy>()), context_(context) {}

    [[gnu::always_inline]] delivery arrived(unsigned, const wire_header& h,
                                            std::span<const std::byte> payload) noexcept {
        const std::uint32_t cost = message_cost(payload.size());
        receive_request* r = context_.match(h.tag);
        if (r == nullptr) [[unlikely]]
            return store(h.tag, payload, cost);
        if (context_.pass(cost)) [[likely]]
            context_.fill_at_once(*r, h.tag, payload);
        else
            context_.fail_fill(*r, make_error_code(errc::protocol_violation));
        return delivery::taken;
    }

protected:
    /// Ends a send by its post's answer; `sent` counts it.
    [[gnu::always_inline]] start_result began(post_result answer, send_request& r, std::uint32_t cost,
                                              std::uint64_t& sent) noexcept {
        switch (answer) {
            case post_result::done:
                ++sent;
                context_.sent_at_once(r);
                return start_result::begun;
            case post_result::posted:
                ++sent;
                posted(r);
                context_.under_way();
                return start_result::begun;
            case post_result::retry: context_.credits().untake(cost); return start_result::wait_room;
            case post_result::failed: break;
        }
        r.finish(context_.why_failed());
        return start_result::begun;
    }

    Context& context_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/eager_engine.ipp>
#endif
