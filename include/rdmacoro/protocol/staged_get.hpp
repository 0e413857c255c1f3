// staged_get: messages of medium length, through blocks that the sender has opened once and the receiver gets from.
//
//   sender                             receiver
//     | copies to a block of its own      |
//     | -- request (the block) ---------> |   matched, or stored: a few bytes for any length of message
//     |   the send has ended              |
//     | <=============== get ============ |   straight to its place, or to a block of its own and copied from there
//     | <--------------------- received - |   the block is free
//
//   sender closes:     | -- leaving --> |   stored messages are got now; goodbye comes behind `received`
#pragma once

#include <rdmacoro/protocol/detail/staged_receiver.hpp>
#include <rdmacoro/protocol/detail/staged_sender.hpp>
#include <rdmacoro/protocol/metrics.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rdmacoro {

namespace detail {

/// Both halves of staged_get: the functions of an engine; see `protocol_policy`.
class staged_halves {
public:
    staged_halves(rendezvous_context& context, std::size_t limit, std::uint64_t metrics::* sent) noexcept
        : context_(context), out_(context, limit, sent), in_(context, limit) {}

    start_result start(send_request& r) noexcept { return out_.start(r); }
    void cancel_send(send_request&) noexcept {}                   // ended when it began
    void transmitted(send_request&, std::error_code) noexcept {}  // only control messages are posted

    delivery arrived(unsigned kind, const wire_header& h, std::span<const std::byte> payload) noexcept {
        switch (kind) {
            case staged_request: return in_.requested(h, payload);
            case staged_received: return out_.received(h, payload);
            default: return in_.leaving(h, payload);
        }
    }
    /// Control messages are short: no transport announces them.
    delivery begin_payload(unsigned, const wire_header&, std::size_t) noexcept {
        return context_.violation();
    }
    std::span<std::byte> payload_space() noexcept { return {}; }
    void payload_arrived(std::size_t) noexcept {}

    void matched(unexpected_message& m, receive_request& r) noexcept { in_.matched(m, r); }
    bool forget_receive(receive_request& r) noexcept { return in_.forget(r); }
    /// This side has begun to close.
    void leaving() noexcept { out_.leaving(); }
    void writable() noexcept {
        out_.writable();
        in_.writable();
    }
    void fail(std::error_code reason) noexcept {
        out_.fail();
        in_.fail(reason);
    }
    /// Sends have ended when they begin, so they are not held.
    void describe(connection_description& into) noexcept { in_.describe(into); }

private:
    rendezvous_context& context_;
    staged_sender out_;
    staged_receiver in_;
};

/// The engine on a connection. `Listed` is the policy as the protocol list has it.
template <class Listed, std::size_t Limit, class Context>
class staged_engine : private rendezvous_context_of<Context, Listed>, public staged_halves {
public:
    explicit staged_engine(Context& context) noexcept
        : rendezvous_context_of<Context, Listed>(context),
          staged_halves(*this, Limit, Listed::sent_counter) {}
};

}  // namespace detail

/// Carries messages that are not synchronous, up to `Limit`, which is `up_to<Bytes>`: a copy at the sender instead of
/// opening the message's memory, and a send that ends at once. The data stays with the sender until it has matched a receive,
/// so that unexpected messages cost the receiver next to nothing; up to 64 wait so, then sends wait.
///
/// Source: the second eager path of FastMPJ's ugnidev (Exposito et al., "Low-latency Java communication devices on
/// RDMA-enabled networks", 2015). Its receiver gets at once and copies later. Its turn to PUT is not needed: blocks are
/// aligned, and where the destination is not the receiver gets to a block, too.
template <class Limit = up_to<16_KiB>>
struct staged_get {
    static_assert(Limit::bytes != 0 && Limit::bytes <= std::size_t{1} << 30,
                  "staged_get needs a limit of its own, up_to<Bytes>: it is the length of its blocks");

    static constexpr std::string_view name = "staged_get";
    static constexpr std::string_view description = "staged at the sender, whence the receiver gets it";
    static constexpr std::uint8_t kinds = detail::staged_kinds;
    static constexpr std::uint64_t metrics::* sent_counter = &metrics::staged_sent;
    static constexpr bool needs_one_sided = true;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities&) noexcept { return Limit::bytes; }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return link.one_sided && !m.synchronous && m.bytes <= Limit::bytes &&
               detail::staging_alignment % link.get_alignment == 0;
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return Limit::bytes; }

    template <class Context, class Listed = staged_get>
    using engine = detail::staged_engine<Listed, Limit::bytes, Context>;
};

}  // namespace rdmacoro
