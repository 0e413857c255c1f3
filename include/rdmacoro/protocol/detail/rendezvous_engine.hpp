// Both halves of a rendezvous as the engine of a policy.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_receiver.hpp>
#include <rdmacoro/protocol/detail/rendezvous_sender.hpp>

#include <span>

namespace rdmacoro::detail {

/// What `protocol_policy` asks of an engine. `Listed` is the policy as the protocol list has it, whose first
/// `rendezvous_kinds` kinds are these.
template <class Listed, rendezvous_way Way, class Context>
class rendezvous_engine {
public:
    explicit rendezvous_engine(Context& context) noexcept : context_(context), out_(context), in_(context) {}

    // Not inline: beside a short message's way through `connection` there is to be nothing of this.
    [[gnu::noinline]] start_result start(send_request& r) noexcept { return out_.start(r); }
    void cancel_send(send_request& r) noexcept { out_.cancel(r); }
    void transmitted(send_request&, std::error_code) noexcept {}  // only control messages are posted

    [[gnu::noinline]] delivery arrived(unsigned kind, const wire_header& h,
                                       std::span<const std::byte> payload) noexcept {
        switch (kind) {
            case rendezvous_request: return in_.requested(h, payload);
            case rendezvous_ready: return out_.ready(h, payload);
            case rendezvous_received: return out_.received(h, payload);
            case rendezvous_sent: return in_.sent(h, payload);
            case rendezvous_abandon: return in_.abandoned(h, payload);
            case rendezvous_gone: return out_.gone(h, payload);
            default: return out_.withdrawn(h, payload);
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
    void writable() noexcept {
        out_.writable();
        in_.writable();
    }
    void fail(std::error_code reason) noexcept {
        out_.fail(reason);
        in_.fail(reason);
    }

private:
    Context& context_;
    rendezvous_sender<Listed, Way, Context> out_;
    rendezvous_receiver<Listed, Way, Context> in_;
};

/// The engine where the transport has no one-sided operations: it carries nothing and accepts nothing.
template <class Context>
class absent_engine {
public:
    explicit absent_engine(Context& context) noexcept : context_(context) {}
    start_result start(send_request& r) noexcept {
        r.finish(errc::unsupported);
        return start_result::begun;
    }
    void cancel_send(send_request&) noexcept {}
    void transmitted(send_request&, std::error_code) noexcept {}
    delivery arrived(unsigned, const wire_header&, std::span<const std::byte>) noexcept {
        return context_.violation();
    }
    delivery begin_payload(unsigned, const wire_header&, std::size_t) noexcept {
        return context_.violation();
    }
    std::span<std::byte> payload_space() noexcept { return {}; }
    void payload_arrived(std::size_t) noexcept {}
    void matched(unexpected_message&, receive_request&) noexcept {}
    bool forget_receive(receive_request&) noexcept { return true; }
    void writable() noexcept {}
    void fail(std::error_code) noexcept {}

private:
    Context& context_;
};

}  // namespace rdmacoro::detail
