// The messages of staged_get, whose data waits in blocks of the sender's until the receiver gets it.
//
// A message is named by the number of its block. Numbers are little-endian.
//
//   request   sender     tag: the message's; payload: block (32 bits), length (32 bits), the block's address (64), its
//                        region's key (64). The peer may get the length rounded up to `staging_alignment`
//   received  receiver   tag: the block, which is free again; the message was got, or is not wanted
//   leaving   sender     it will say goodbye once its blocks are free: get what is kept, and from now on all that comes
#pragma once

#include <rdmacoro/memory/slab_pool.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro::detail {

/// Kinds of the policy, counted from its first.
enum staged_kind : unsigned { staged_request, staged_received, staged_leaving, staged_kinds };

/// Blocks of one side of a connection; more sends wait until the receiver has got some.
inline constexpr std::uint32_t most_staged = 64;

/// Where blocks begin, and what their lengths are multiples of: every `get_alignment` that divides it is met.
inline constexpr std::size_t staging_alignment = slab_pool::alignment;

[[nodiscard]] constexpr std::size_t staged_bytes(std::size_t bytes) noexcept {
    return (bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
}

/// What a request costs. As long as its data stays at the sender, what an empty message does; behind `leaving` the receiver
/// keeps all of it, so that it costs what it would by `eager`, though never more than the budget.
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

    [[nodiscard]] std::array<std::byte, wire_bytes> store() const noexcept {
        std::array<std::byte, wire_bytes> raw;
        store_number(raw.data(), block);
        store_number(raw.data() + 4, length);
        store_number(raw.data() + 8, address);
        store_number(raw.data() + 16, key);
        return raw;
    }
    /// False: this can't be.
    [[nodiscard]] bool load(std::span<const std::byte> raw, std::size_t limit) noexcept {
        if (raw.size() != wire_bytes) return false;
        block = load_number<std::uint32_t>(raw.data());
        length = load_number<std::uint32_t>(raw.data() + 4);
        address = load_number<std::uint64_t>(raw.data() + 8);
        key = load_number<std::uint64_t>(raw.data() + 16);
        return block < most_staged && length <= limit && address % staging_alignment == 0;
    }
};

}  // namespace rdmacoro::detail
