// Both halves of a rendezvous as the engine of a policy, and the common part of the rendezvous policies.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_receiver.hpp>
#include <rdmacoro/protocol/detail/rendezvous_sender.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro::detail {

/// The functions of an engine; see `policy.hpp`.
class rendezvous_halves {
public:
    rendezvous_halves(rendezvous_context& context, rendezvous_way way, std::uint64_t metrics::* sent) noexcept
        : context_(context), out_(context, way, sent), in_(context, way) {}

    // Not inline: the short path through `connection` is to have nothing of this.
    start_result start(send_request& r) noexcept;
    void cancel_send(send_request& r) noexcept;
    void transmitted(send_request&, std::error_code) noexcept {}  // only control messages are posted
    delivery arrived(unsigned kind, const wire_header& h, std::span<const std::byte> payload) noexcept;
    /// Control messages are short: no transport announces them.
    delivery begin_payload(unsigned, const wire_header&, std::size_t) noexcept {
        return context_.violation();
    }
    std::span<std::byte> payload_space() noexcept { return {}; }
    void payload_arrived(std::size_t) noexcept {}
    void matched(unexpected_message& m, receive_request& r) noexcept;
    bool forget_receive(receive_request& r) noexcept;
    void writable() noexcept;
    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

private:
    rendezvous_context& context_;
    rendezvous_sender out_;
    rendezvous_receiver in_;
};

/// The engine on a connection. `Listed` is the policy in the protocol list; its first `rendezvous_kinds` kinds are
/// these.
template <class Listed, rendezvous_way Way, class Context>
class rendezvous_engine : private rendezvous_context_of<Context, Listed>, public rendezvous_halves {
public:
    explicit rendezvous_engine(Context& context) noexcept
        : rendezvous_context_of<Context, Listed>(context),
          rendezvous_halves(*this, Way, Listed::sent_counter) {}
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

/// The common part of the rendezvous policies. `Longest`: the capability that bounds the messages of a policy with
/// `Limit` `up_to_transport`; nullptr: no bound.
template <class Limit, class From, std::size_t capabilities::* Longest = nullptr>
struct rendezvous_policy {
    static constexpr std::uint8_t kinds = rendezvous_kinds;
    static constexpr bool needs_one_sided = true;

    [[nodiscard]] static constexpr std::size_t longest([[maybe_unused]] const capabilities& link) noexcept {
        if constexpr (Limit::bytes != 0) {
            return Limit::bytes;
        } else if constexpr (Longest != nullptr) {
            return link.*Longest;
        } else {
            return static_cast<std::size_t>(-1);
        }
    }
    [[nodiscard]] static constexpr std::size_t shortest(const capabilities& link) noexcept {
        return From::bytes(link);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        const std::size_t from = shortest(link);
        return link.one_sided && from != never_by_rendezvous && m.bytes >= from && m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept {
        return Limit::bytes ^ From::parameter << 32;
    }
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/rendezvous_engine.ipp>
#endif
