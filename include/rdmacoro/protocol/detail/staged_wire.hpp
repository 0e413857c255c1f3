// The messages of staged_get: data waits in blocks of the sender's until the receiver gets it.
//
// A message is named by the number of its block: one used before, or the lowest never used. Numbers are little-endian.
//
//   request   sender     tag: the message's; payload: block (32 bits), length (32 bits), the block's address (64), its
//                        region's key (64). The peer may get the length rounded up to `staging_alignment`
//   received  receiver   tag: the block, which is free again; the message was got, or is not wanted
//   leaving   sender     it will send goodbye once its blocks are free: get stored messages now, and later ones at once
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/slab_pool.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro::detail {

/// Kinds of the policy, counted from its first.
enum staged_kind : unsigned { staged_request, staged_received, staged_leaving, staged_kinds };

/// Blocks of one side of a connection; more sends wait until the receiver has got some.
inline constexpr std::uint32_t most_staged = 64;

/// Alignment of the blocks' addresses and lengths: every `get_alignment` that divides it is met.
inline constexpr std::size_t staging_alignment = slab_pool::alignment;

[[nodiscard]] constexpr std::size_t staged_bytes(std::size_t bytes) noexcept {
    return (bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
}

/// The cost of a request. As long as its data stays at the sender, the cost of an empty message; behind `leaving` the
/// receiver stores all of it, so that it costs as much as by `eager`, though never more than the budget.
[[nodiscard]] constexpr std::uint32_t staged_cost(std::size_t bytes, bool leaving,
                                                  std::uint32_t budget) noexcept {
    return leaving ? std::min(message_cost(bytes), budget) : message_cost(0);
}

/// The payload of `request`.
struct staged_request_body {
    static constexpr std::size_t wire_bytes = 24;
    static_assert(wire_bytes <= most_copied);

    std::uint32_t block = 0;
    std::uint32_t length = 0;
    std::uint64_t address = 0;
    std::uint64_t key = 0;

    [[nodiscard]] std::span<const std::byte> store(std::span<std::byte, wire_bytes> raw) const noexcept;
    /// False: this can't be.
    [[nodiscard]] bool load(std::span<const std::byte> raw, std::size_t limit) noexcept;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/staged_wire.ipp>
#endif
