// What a protocol policy is: a type that says which messages it carries and how.
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

namespace rdmacoro {

/// What a message is when its policy is chosen.
struct message_facts {
    std::size_t bytes = 0;
    bool synchronous = false;  ///< its sender wants to know when it is matched
};

/// What became of starting a send.
enum class start_result : std::uint8_t {
    begun,        ///< the policy has it now, or it has ended already
    wait_credit,  ///< nothing happened; try again when the peer gives credit back
    wait_room,    ///< nothing happened; try again when the transport has room, or the policy says so
};

/// A protocol policy. Semantic requirements:
///  1. `name` and `description` are for people; `name` is part of the list's fingerprint, as is `parameter()`. `text()`, where
///     it is there, says the parameters better than their number.
///  2. `kinds` is how many message kinds it puts on the wire; the list gives each policy its own numbers, in order.
///  3. `admits(facts, capabilities)` is a pure function: whether it carries such a message over such a link. For the
///     same facts but more bytes it may change from true to false once, behind `longest(capabilities)`, and before that from
///     false to true once, at `shortest(capabilities)` where there is one.
///     `needs_one_sided`, where it is there and true: only for links with get and put.
///  4. `engine<Context>` is what the policy keeps for each connection. Its functions (all `noexcept`):
///     - `start(request)` → `start_result`: a send begins. After `begun` it has ended already (`context.sent_at_once`, or
///       `request.finish` with an error), or the engine has called `context.under_way` and will call
///       `context.finish_send` once.
///     - `arrived(kind, header, payload)` → `delivery`: one of its messages came; `kind` counts from 0.
///     - `begin_payload(kind, header, bytes)` → `delivery`, `payload_space()`, `payload_arrived(n)`: the same for a
///       message whose payload is still coming; see `message_sink`.
///     - `matched(message, request)`: a receive met a message that this engine had kept; the message is out of the
///       matcher, and the engine frees it.
///     - `cancel_send(request)`: gives the caller's memory up and ends the send, now or later.
///     - `forget_receive(request)` → `bool`: a receive that it may be filling is canceled. True: from now on its memory is
///       not touched. False: it still is; `context.fail_fill` ends it with `errc::canceled` when it is free.
///     - `transmitted(request, outcome)`: what it posted for this send is over.
///     - `writable()`: the transport has room again.
///     - `leaving()`, where it is there: this side has begun to close, and says goodbye when nothing is `under_way`.
///     - `fail(reason)`: the link is down: ends every send and every receive it holds.
template <class P>
concept protocol_policy = requires(const message_facts& facts, const capabilities& link) {
    { P::name } -> std::convertible_to<std::string_view>;
    { P::description } -> std::convertible_to<std::string_view>;
    { P::kinds } -> std::convertible_to<std::uint8_t>;
    { P::admits(facts, link) } noexcept -> std::same_as<bool>;
    { P::longest(link) } noexcept -> std::same_as<std::size_t>;
    { P::parameter() } noexcept -> std::same_as<std::uint64_t>;
};

/// Limits as types: messages up to `Bytes`, or as long as the transport's capabilities say.
template <std::size_t Bytes>
struct up_to {
    static constexpr std::size_t bytes = Bytes;
};
struct up_to_transport {
    static constexpr std::size_t bytes = 0;
};

/// The other end of a policy's sizes: from `Bytes` on, or from where the transport's capabilities say (`rendezvous_bytes`).
template <std::size_t Bytes>
struct from {
    [[nodiscard]] static constexpr std::size_t bytes(const capabilities&) noexcept { return Bytes; }
    static constexpr std::uint64_t parameter = Bytes;
};
struct from_transport {
    [[nodiscard]] static constexpr std::size_t bytes(const capabilities& link) noexcept {
        return link.rendezvous_bytes;
    }
    static constexpr std::uint64_t parameter = ~std::uint64_t{0};
};

namespace detail {

/// A policy and its parameters for people: what its `text()` says, or its name and `<parameter>`.
template <class Policy>
[[nodiscard]] std::string policy_text() {
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
[[nodiscard]] std::string limits_text(std::string_view name) {
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
[[nodiscard]] consteval std::size_t operator""_KiB(unsigned long long n) {
    return static_cast<std::size_t>(n) << 10;
}
[[nodiscard]] consteval std::size_t operator""_MiB(unsigned long long n) {
    return static_cast<std::size_t>(n) << 20;
}
}  // namespace literals
using namespace literals;

}  // namespace rdmacoro
