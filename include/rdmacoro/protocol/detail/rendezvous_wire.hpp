// The messages of rendezvous policies, sent by both sides before and after data goes from memory to memory.
//
// A message is named by its stream, a small number that its sender chose: one used before, or the lowest never used. In all
// but the request the header's tag is the stream. Numbers are little-endian.
//
//   request   sender     tag: the message's; payload: stream (32 bits), shared copy (32), length (64), pieces of the source;
//                        flag 1: every other message of this stream
//   ready     receiver   payload: offset (64 bits), pieces of the destination; flag 1: the receiver is copying, too
//   received  receiver   the source is free: all has been got, or is not wanted
//   sent      sender     the destination is free: all that was asked for has been put; flag 1: no more will be
//   abandon   sender     the send was canceled, the source is closed
//   gone      receiver   answer to `abandon`, and only to it: the stream's number is free again
//   withdraw  receiver   the destination is closed; answered by `sent`; flag as in the request, for it may cross the last
//                        `sent` and find the stream in use again
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro::detail {

/// Kinds of a rendezvous policy, counted from its first.
enum rendezvous_kind : unsigned {
    rendezvous_request,
    rendezvous_ready,
    rendezvous_received,
    rendezvous_sent,
    rendezvous_abandon,
    rendezvous_gone,
    rendezvous_withdraw,
    rendezvous_kinds,
};

/// Streams of one side and policy at a time; more sends wait their turn.
inline constexpr std::uint32_t most_streams = 1024;

/// Memory of the peer: several pieces, in order.
struct remote_pieces {
    struct piece {
        std::uint64_t address;
        std::uint64_t length;
        std::uint64_t key;
    };
    static constexpr std::size_t most = 16;
    static constexpr std::size_t wire_bytes = 24;

    piece at[most];
    std::uint32_t count = 0;

    void add(const remote_region& r) noexcept { at[count++] = {r.address, r.length, r.key}; }

    /// The sum of the lengths, or the largest number there is.
    [[nodiscard]] std::uint64_t bytes() const noexcept;

    /// Writes them to `to`; answers how many bytes that took.
    std::size_t store(std::byte* to) const noexcept;
    /// False: this can't be.
    [[nodiscard]] bool load(std::span<const std::byte> raw) noexcept;
};

/// The payload of `request`.
struct rendezvous_request_body {
    static constexpr std::size_t fixed_bytes = 16;
    static constexpr std::size_t most_bytes = fixed_bytes + remote_pieces::most * remote_pieces::wire_bytes;
    static_assert(most_bytes <= most_copied);

    std::uint32_t stream = 0;
    shared_copy_id copy = no_shared_copy;
    std::uint64_t length = 0;
    remote_pieces source;  ///< none: the receiver has to ask for puts

    [[nodiscard]] std::span<const std::byte> store(std::span<std::byte, most_bytes> raw) const noexcept;
    /// False: this can't be.
    [[nodiscard]] bool load(std::span<const std::byte> raw) noexcept;
};

/// The payload of `ready`.
struct rendezvous_ready_body {
    static constexpr std::size_t fixed_bytes = 8;
    static constexpr std::size_t most_bytes = fixed_bytes + remote_pieces::most * remote_pieces::wire_bytes;

    std::uint64_t offset = 0;
    remote_pieces destination;

    [[nodiscard]] std::span<const std::byte> store(std::span<std::byte, most_bytes> raw) const noexcept;
    /// False: this can't be.
    [[nodiscard]] bool load(std::span<const std::byte> raw) noexcept;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/rendezvous_wire.ipp>
#endif
