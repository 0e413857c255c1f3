// gate_entry: how a call comes into a gate's lane, behind what its thread has put there.
#pragma once

#include <rdmacoro/service/detail/gate_lane.hpp>

#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// As `posted_entry`, for `remote_task`. A coroutine's call waits for room in the lane, a thread without a scheduler sleeps.
class gate_entry final : private gate_wait {
public:
    gate_entry(gate_lane& in, std::uint32_t to) noexcept : gate_wait(&look), lane_(&in), peer_(to) {}
    gate_entry(gate_entry&& other) noexcept
        : gate_wait(std::move(other)), lane_(other.lane_), peer_(other.peer_) {}

    RDMACORO_DECL void enter(remote_base& of) noexcept;
    RDMACORO_DECL bool leave(remote_base& of) noexcept;
    /// The thread sleeps until there is room. False: the gate has ended, or `until` has passed. Throws `std::bad_alloc`.
    [[nodiscard]] RDMACORO_DECL bool wait_for_room(time_point until);

private:
    RDMACORO_DECL static bool look(gate_wait& at) noexcept;
    /// Puts it into the lane. False: there is no room.
    [[nodiscard]] bool goes(gate_flow& to) noexcept;

    gate_lane* lane_;
    std::uint32_t peer_;
    gate_flow* flow_ = nullptr;  // while it waits for room
    remote_base* of_ = nullptr;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/gate_entry.ipp>
#endif
