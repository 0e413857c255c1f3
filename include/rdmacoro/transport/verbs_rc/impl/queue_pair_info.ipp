// Bodies of queue_pair_info.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/queue_pair_info.hpp>

#include <cstring>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD void queue_pair_info::store(std::byte* to) const noexcept {
    std::memcpy(to, hello.data(), hello.size());
    to += hello.size();
    store_number(to, number);
    store_number(to + 4, sequence);
    store_number(to + 8, lid);
    store_number(to + 10, mtu);
    store_number(to + 11, read_depth);
    store_number(to + 12, flags);
    std::memcpy(to + 16, gid.raw, sizeof gid.raw);
}

RDMACORO_COLD void queue_pair_info::load(const std::byte* from) noexcept {
    std::memcpy(hello.data(), from, hello.size());
    from += hello.size();
    number = load_number<std::uint32_t>(from) & 0xffffff;
    sequence = load_number<std::uint32_t>(from + 4) & 0xffffff;
    lid = load_number<std::uint16_t>(from + 8);
    mtu = load_number<std::uint8_t>(from + 10);
    read_depth = load_number<std::uint8_t>(from + 11);
    flags = load_number<std::uint32_t>(from + 12);
    std::memcpy(gid.raw, from + 16, sizeof gid.raw);
}

}  // namespace rdmacoro::detail::verbs
