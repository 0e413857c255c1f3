// The regions that one message has opened to the peer.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// At most `remote_pieces::most` regions. The first, which is mostly the only one, needs no memory from the heap; the others
/// take theirs once.
class region_list {
public:
    region_list() noexcept = default;
    region_list(const region_list&) = delete;
    region_list& operator=(const region_list&) = delete;
    ~region_list() { delete[] more_; }

    [[nodiscard]] std::uint32_t size() const noexcept { return count_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] bool full() const noexcept { return count_ == remote_pieces::most; }
    /// False: memory is short, and the region is closed. Precondition: not full.
    [[nodiscard]] bool add(region&& open) noexcept;
    /// Closes all.
    void clear() noexcept;
    /// Adds the descriptors of all regions to `pieces`, which is sent to the peer.
    void name_in(remote_pieces& pieces) const noexcept;

private:
    region first_;
    region* more_ = nullptr;
    std::uint32_t count_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/region_list.ipp>
#endif
