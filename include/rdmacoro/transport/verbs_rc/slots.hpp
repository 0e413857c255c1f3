// Slots: registered memory of the domain that messages are received into, and staged in when they are sent.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/detail/slots.hpp>
#include <rdmacoro/transport/verbs_rc/device.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace rdmacoro::detail::verbs {

class receive_queue;

/// One slot. It is free, posted for receiving, held with a message that arrived, lent, or being sent.
struct alignas(64) slot {
    slot* next = nullptr;  // in a list of its state
    std::byte* data = nullptr;
    std::uint32_t lkey = 0;
    std::uint32_t bytes = 0;         // of the frame that arrived
    receive_queue* queue = nullptr;  // that it was posted to last
    std::uint32_t place = 0;         // among those posted to a queue of one link
};

/// Eight bytes of a slot that the device writes the result of an atomic to.
struct result_cell {
    result_cell* next = nullptr;
    std::uint64_t* value = nullptr;
    std::uint32_t lkey = 0;
};

using slot_queue = detail::slot_queue<slot>;

/// Registers slots for the device to read from and write to.
struct slot_registrar {
    using registration = unique_registration;

    ibv_pd* domain;

    [[nodiscard]] int add(std::span<std::byte> memory, std::span<slot> slots,
                          unique_registration& made) const noexcept;
};

/// All slots of a domain, some of them cut further into cells.
class slot_pool : public slabs_of_slots<slot, slot_registrar> {
public:
    using slabs_of_slots::give;

    slot_pool(ibv_pd* domain, std::size_t slot_bytes) noexcept : slabs_of_slots({domain}, slot_bytes) {}

    /// Nullptr: there is no memory.
    [[nodiscard]] result_cell* take_cell() noexcept {
        if (free_cells_ == nullptr && !grow_cells()) return nullptr;
        result_cell* cell = free_cells_;
        free_cells_ = cell->next;
        return cell;
    }
    void give(result_cell& cell) noexcept {
        cell.next = free_cells_;
        free_cells_ = &cell;
    }

private:
    static constexpr std::size_t cells_of_slot = 256;

    [[nodiscard]] bool grow_cells() noexcept;

    std::vector<std::unique_ptr<std::array<result_cell, cells_of_slot>>> cells_;
    result_cell* free_cells_ = nullptr;
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/slots.ipp>
#endif
