// Bodies of detail/rendezvous_wire.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include <rdmacoro/transport/detail/one_sided_wire.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD std::uint64_t remote_pieces::bytes() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (at[i].length > ~sum) return ~std::uint64_t{0};
        sum += at[i].length;
    }
    return sum;
}

RDMACORO_COLD std::size_t remote_pieces::store(std::byte* to) const noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
        store_number(to + i * wire_bytes, at[i].address);
        store_number(to + i * wire_bytes + 8, at[i].length);
        store_number(to + i * wire_bytes + 16, at[i].key);
    }
    return count * wire_bytes;
}

RDMACORO_COLD bool remote_pieces::load(std::span<const std::byte> raw) noexcept {
    if (raw.size() % wire_bytes != 0 || raw.size() > most * wire_bytes) return false;
    count = static_cast<std::uint32_t>(raw.size() / wire_bytes);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::byte* from = raw.data() + i * wire_bytes;
        at[i] = {load_number<std::uint64_t>(from), load_number<std::uint64_t>(from + 8),
                 load_number<std::uint64_t>(from + 16)};
    }
    return true;
}

RDMACORO_COLD std::span<const std::byte>
rendezvous_request_body::store(std::span<std::byte, most_bytes> raw) const noexcept {
    store_number(raw.data(), stream);
    store_number(raw.data() + 4, copy);
    store_number(raw.data() + 8, length);
    return raw.first(fixed_bytes + source.store(raw.data() + fixed_bytes));
}

RDMACORO_COLD bool rendezvous_request_body::load(std::span<const std::byte> raw) noexcept {
    if (raw.size() < fixed_bytes || !source.load(raw.subspan(fixed_bytes))) return false;
    stream = load_number<std::uint32_t>(raw.data());
    copy = load_number<shared_copy_id>(raw.data() + 4);
    length = load_number<std::uint64_t>(raw.data() + 8);
    return stream < most_streams && length <= std::uint64_t{1} << 62 &&
           (source.count == 0 || source.bytes() == length);
}

RDMACORO_COLD std::span<const std::byte>
rendezvous_ready_body::store(std::span<std::byte, most_bytes> raw) const noexcept {
    store_number(raw.data(), offset);
    return raw.first(fixed_bytes + destination.store(raw.data() + fixed_bytes));
}

RDMACORO_COLD bool rendezvous_ready_body::load(std::span<const std::byte> raw) noexcept {
    if (raw.size() < fixed_bytes || !destination.load(raw.subspan(fixed_bytes))) return false;
    offset = load_number<std::uint64_t>(raw.data());
    return destination.count != 0;
}

}  // namespace rdmacoro::detail
