// The messages of receivers and senders about buffers that are announced before a message is sent.
//
// An announcement has a number of the receiver's choice, below `most_announcements`: one used before, or the lowest never
// used. In all messages but `announce` the header's tag is that number.
//
//   announce   receiver   tag: the receive's; payload: number (32 bits), ahead (32), seen (64), pieces of the destination
//   claim      sender     this message takes the announced buffer; payload: length (64 bits). Takes its place in the order
//                         of messages
//   finish     sender     claimed buffer: flag 0: all is there; 1: given up as `revoke` asked; 2: the send was canceled
//   withdraw   receiver   forget the announcement, if nothing has claimed it
//   withdrawn  sender     answer to `withdraw`, and only to it
//   revoke     receiver   the claimed buffer is closed; answered by `finish`
//
// An announcement names one message: of those with its tag that the sender begins after the first `seen` messages of this
// direction, the one with `ahead` others before it. The receiver knows it, as messages of one tag and one sender match
// receives in order: `ahead` are the receives posted before. So nothing has to be acknowledged, and an announcement that
// crosses its message is recognised by the sender, which drops it. The published rules (Rashti, Afsahi, "A speculative and
// adaptive MPI rendezvous protocol over RDMA-enabled interconnects", 2009) with acknowledgements and flags are unsafe in two
// cases; tests/protocol/speculation_model.cpp shows both.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include <cstdint>
#include <span>

namespace rdmacoro::detail {

/// Kinds of a speculative policy behind those of its fallback.
enum speculation_kind : unsigned {
    speculation_announce,
    speculation_claim,
    speculation_finish,
    speculation_withdraw,
    speculation_withdrawn,
    speculation_revoke,
    speculation_kinds,
};

/// Announcements of one side that may be out at a time.
inline constexpr std::uint32_t most_announcements = 64;

/// A receive with more posted receives of its tag ahead of it is not announced: each that is posted would have to count them.
inline constexpr std::uint32_t most_announced_ahead = 64;

/// How many messages a sender looks back on; an announcement that has seen less is too late for any of them.
inline constexpr std::uint32_t remembered_sends = 1024;

/// Flags of `finish`.
enum : std::uint8_t { finish_done = 0, finish_revoked = 1, finish_canceled = 2 };

/// The payload of `announce`.
struct announcement_body {
    static constexpr std::size_t fixed_bytes = 16;
    static constexpr std::size_t most_bytes = fixed_bytes + remote_pieces::most * remote_pieces::wire_bytes;
    static_assert(most_bytes <= most_copied);

    std::uint32_t number = 0;
    std::uint32_t ahead = 0;
    std::uint64_t seen = 0;
    remote_pieces destination;

    [[nodiscard]] std::span<const std::byte> store(std::span<std::byte, most_bytes> raw) const noexcept;
    /// False: this can't be.
    [[nodiscard]] bool load(std::span<const std::byte> raw) noexcept;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/speculation_wire.ipp>
#endif
