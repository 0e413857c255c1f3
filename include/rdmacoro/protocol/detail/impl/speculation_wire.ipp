// Bodies of detail/speculation_wire.hpp.
#pragma once

#include <rdmacoro/protocol/detail/speculation_wire.hpp>

#include <rdmacoro/transport/detail/one_sided_wire.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD std::span<const std::byte>
announcement_body::store(std::span<std::byte, most_bytes> raw) const noexcept {
    store_number(raw.data(), number);
    store_number(raw.data() + 4, ahead);
    store_number(raw.data() + 8, seen);
    return raw.first(fixed_bytes + destination.store(raw.data() + fixed_bytes));
}

RDMACORO_COLD bool announcement_body::load(std::span<const std::byte> raw) noexcept {
    if (raw.size() < fixed_bytes || !destination.load(raw.subspan(fixed_bytes))) return false;
    number = load_number<std::uint32_t>(raw.data());
    ahead = load_number<std::uint32_t>(raw.data() + 4);
    seen = load_number<std::uint64_t>(raw.data() + 8);
    return number < most_announcements && destination.count != 0 && destination.bytes() != 0 &&
           destination.bytes() <= std::uint64_t{1} << 62;
}

}  // namespace rdmacoro::detail
