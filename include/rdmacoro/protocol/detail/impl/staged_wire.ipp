// Bodies of detail/staged_wire.hpp.
#pragma once

#include <rdmacoro/protocol/detail/staged_wire.hpp>

#include <rdmacoro/transport/detail/one_sided_wire.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD std::span<const std::byte>
staged_request_body::store(std::span<std::byte, wire_bytes> raw) const noexcept {
    store_number(raw.data(), block);
    store_number(raw.data() + 4, length);
    store_number(raw.data() + 8, address);
    store_number(raw.data() + 16, key);
    return raw;
}

RDMACORO_COLD bool staged_request_body::load(std::span<const std::byte> raw, std::size_t limit) noexcept {
    if (raw.size() != wire_bytes) return false;
    block = load_number<std::uint32_t>(raw.data());
    length = load_number<std::uint32_t>(raw.data() + 4);
    address = load_number<std::uint64_t>(raw.data() + 8);
    key = load_number<std::uint64_t>(raw.data() + 16);
    return block < most_staged && length <= limit && address % staging_alignment == 0;
}

}  // namespace rdmacoro::detail
