// queue_pair_info: the connect_info of a verbs connection that opens over TCP.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/verbs_rc/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <infiniband/verbs.h>

namespace rdmacoro::detail::verbs {

/// One side's queue pair: the data that the other side needs to connect to it.
struct queue_pair_info {
    static constexpr std::size_t wire_bytes = greeting::wire_bytes + 32;

    greeting::bytes hello{};
    std::uint32_t number = 0;    // of the queue pair
    std::uint32_t sequence = 0;  // of its first packet
    std::uint16_t lid = 0;
    std::uint8_t mtu = 0;  // ibv_mtu
    std::uint8_t read_depth = 0;
    std::uint32_t flags = 0;
    ibv_gid gid{};

    void store(std::byte* to) const noexcept;
    void load(const std::byte* from) noexcept;
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/queue_pair_info.ipp>
#endif
