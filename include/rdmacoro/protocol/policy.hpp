// protocol_policy: a type that decides which messages it carries and how; policy_engine: its part of a connection.
#pragma once

#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/protocol/wire.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace rdmacoro {

/// The facts by which a message's policy is chosen.
struct message_facts {
    std::size_t bytes = 0;     ///< length of the message
    bool synchronous = false;  ///< the send ends when it is matched
};

/// The outcome of starting a send.
enum class start_result : std::uint8_t {
    begun,        ///< the policy has it now, or it has ended already
    wait_credit,  ///< nothing happened; try again when the peer gives credit back
    wait_room,    ///< nothing happened; try again when the transport has room, or the policy calls for it
    wait_peer,    ///< nothing happened; the peer must receive first; try again when the policy calls for it
};

namespace detail {
/// The context that policies are checked with. Engines are declared for it and never made: it has names only.
struct context_archetype {
    struct link_type {};
};
}  // namespace detail

/// The part of a policy that each connection holds, made from its context. All functions are `noexcept`. Semantic requirements:
///  1. `start(request)` → `start_result`: a send begins. After `begun` it has ended already (`context.sent_at_once`, or
///     `request.finish` with an error), or the engine has called `context.under_way` and will call
///     `context.finish_send` once. After the other results nothing has happened, and it is called again.
///  2. `transmitted(request, outcome)`: a message that it posted for this send is over.
///  3. `cancel_send(request)`: gives the caller's memory up and ends the send, now or later.
///  4. `arrived(kind, header, payload)` → `delivery`: one of its messages came; `kind` counts from 0. After `defer` the same
///     message comes again.
///  5. `begin_payload(kind, header, bytes)` → `delivery`, `payload_space()`, `payload_arrived(n)`: the same for a
///     message with a payload that is still arriving; see `message_sink`.
///  6. `matched(message, request)`: a receive has matched a message that this engine has stored; the message is out of the
///     matcher, and the engine frees it. A receive that an engine has matched is ended by it once: by `context.fill_at_once`,
///     `end_fill`, `fail_fill` or `hand_over`.
///  7. `forget_receive(request)` → `bool`: a receive that it may be filling is canceled. True: from now on its memory is
///     not touched. False: it still is; `context.fail_fill` ends it with `errc::canceled` when it is free.
///  8. `writable()`: the transport has room again.
///  9. `fail(reason)`: the link is down: ends every send and every receive it holds.
/// 10. `leaving()`, optional: this side has begun to close, and sends its goodbye when nothing is `under_way`.
template <class E>
concept policy_engine =
    requires(E& engine, detail::send_request& sent, detail::receive_request& receive,
             detail::unexpected_message& message, unsigned kind, const detail::wire_header& header,
             std::span<const std::byte> payload, std::size_t bytes, std::error_code outcome) {
        { engine.start(sent) } noexcept -> std::same_as<start_result>;
        { engine.transmitted(sent, outcome) } noexcept;
        { engine.cancel_send(sent) } noexcept;
        { engine.arrived(kind, header, payload) } noexcept -> std::same_as<delivery>;
        { engine.begin_payload(kind, header, bytes) } noexcept -> std::same_as<delivery>;
        { engine.payload_space() } noexcept -> std::same_as<std::span<std::byte>>;
        { engine.payload_arrived(bytes) } noexcept;
        { engine.matched(message, receive) } noexcept;
        { engine.forget_receive(receive) } noexcept -> std::same_as<bool>;
        { engine.writable() } noexcept;
        { engine.fail(outcome) } noexcept;
    };

/// A protocol policy. Semantic requirements:
///  1. `name` and `description` are for people; `name` is part of the list's fingerprint, as is `parameter()`.
///     `text()`, optional, describes the parameters for people.
///  2. `kinds` is the number of message kinds it puts on the wire; the list gives each policy its own numbers, in
///     order.
///  3. `admits(facts, capabilities)` is a pure function: whether it carries such a message over such a link. For the
///     same facts but more bytes it may change from true to false once, behind `longest(capabilities)`, and before that from
///     false to true once, at `shortest(capabilities)` where there is one.
///     `needs_one_sided`, optional: when true, it is only for links with get and put.
///  4. `engine<Context>` models `policy_engine` for every context, and is constructible from one.
template <class P>
concept protocol_policy =
    requires(const message_facts& facts, const capabilities& link) {
        { P::name } -> std::convertible_to<std::string_view>;
        { P::description } -> std::convertible_to<std::string_view>;
        { P::kinds } -> std::convertible_to<std::uint8_t>;
        { P::admits(facts, link) } noexcept -> std::same_as<bool>;
        { P::longest(link) } noexcept -> std::same_as<std::size_t>;
        { P::parameter() } noexcept -> std::same_as<std::uint64_t>;
        typename P::template engine<detail::context_archetype>;
    } && policy_engine<typename P::template engine<detail::context_archetype>> &&
    std::is_constructible_v<typename P::template engine<detail::context_archetype>,
                            detail::context_archetype&>;

/// Limits as types: messages up to `Bytes`, or as long as the transport's capabilities allow.
template <std::size_t Bytes>
struct up_to {
    static constexpr std::size_t bytes = Bytes;
};
/// The limit that the transport sets, or `tuning`.
struct up_to_transport {
    static constexpr std::size_t bytes = 0;
};

/// The lower limit of a policy's sizes: from `Bytes` on, or from the transport's `rendezvous_bytes` on.
template <std::size_t Bytes>
struct from {
    [[nodiscard]] static constexpr std::size_t bytes(const capabilities&) noexcept { return Bytes; }
    static constexpr std::uint64_t parameter = Bytes;
};
/// From the transport's `rendezvous_bytes` on, or `tuning`'s limit.
struct from_transport {
    [[nodiscard]] static constexpr std::size_t bytes(const capabilities& link) noexcept {
        return link.rendezvous_bytes;
    }
    static constexpr std::uint64_t parameter = ~std::uint64_t{0};
};

namespace detail {

/// A policy and its parameters for people: its `text()`, or its name and `<parameter>`.
template <class Policy>
[[nodiscard, gnu::cold]] std::string policy_text() {
    if constexpr (requires { Policy::text(); }) {
        return Policy::text();
    } else {
        std::string text(Policy::name);
        if (Policy::parameter() != 0)
            text.append("<").append(std::to_string(Policy::parameter())).append(">");
        return text;
    }
}

/// The text of a policy with both limits: "get_rendezvous<up to 65536, from 4096>".
template <class Limit, class From>
[[nodiscard, gnu::cold]] std::string limits_text(std::string_view name) {
    std::string limits;
    if constexpr (Limit::bytes != 0) limits.append("up to ").append(std::to_string(Limit::bytes));
    if constexpr (From::parameter != 0) {
        if (!limits.empty()) limits += ", ";
        limits += "from ";
        limits +=
            From::parameter == ~std::uint64_t{0} ? "the transport's limit" : std::to_string(From::parameter);
    }
    std::string text(name);
    if (!limits.empty()) text.append("<").append(limits).append(">");
    return text;
}

}  // namespace detail

namespace literals {
/// Units of 1024 bytes.
[[nodiscard]] consteval std::size_t operator""_KiB(unsigned long long n) {
    return static_cast<std::size_t>(n) << 10;
}
/// Units of 1024 * 1024 bytes.
[[nodiscard]] consteval std::size_t operator""_MiB(unsigned long long n) {
    return static_cast<std::size_t>(n) << 20;
}
}  // namespace literals
using namespace literals;

}  // namespace rdmacoro
