// The set of memory that its owners have back, so that a simulated network detects transfers that touch it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <rdmacoro/coro/detail/config.hpp>
#include <span>
#include <vector>

namespace rdmacoro::detail::sim {

/// A set of bytes of memory, as ranges that neither touch nor overlap, in ascending order.
class memory_watch {
public:
    void add(std::span<const std::byte> memory);

    void remove(std::span<const std::byte> memory);

    [[nodiscard]] bool overlaps(std::span<const std::byte> memory) const noexcept;

    /// Whether all of `memory` is in the set.
    [[nodiscard]] bool contains(std::span<const std::byte> memory) const noexcept;

private:
    struct range {
        std::uintptr_t first;
        std::uintptr_t end;
    };
    [[nodiscard]] static range range_of(std::span<const std::byte> memory) noexcept {
        const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
        return {first, first + memory.size()};
    }

    std::vector<range> ranges_;
};

}  // namespace rdmacoro::detail::sim

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/memory_watch.ipp>
#endif
