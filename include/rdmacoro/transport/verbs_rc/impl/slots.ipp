// Bodies of slots.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/slots.hpp>

#include <cerrno>
#include <utility>

namespace rdmacoro::detail::verbs {

RDMACORO_DECL int slot_registrar::add(std::span<std::byte> memory, std::span<slot> slots,
                                      unique_registration& made) const noexcept {
    made.reset((::ibv_reg_mr)(domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE));
    if (made == nullptr) return errno != 0 ? -errno : -ENOMEM;
    for (slot& s : slots) s.lkey = made->lkey;
    return 0;
}

RDMACORO_DECL bool slot_pool::grow_cells() noexcept {
    if (reserve(1) != 0) return false;
    slot* s = take();
    try {
        if (s != nullptr) cells_.push_back(std::make_unique<std::array<result_cell, cells_of_slot>>());
    } catch (const std::bad_alloc&) {
        give(*std::exchange(s, nullptr));
    }
    if (s == nullptr) {
        unreserve(1);
        return false;
    }
    for (std::size_t i = 0; i < cells_of_slot; ++i) {
        result_cell& cell = (*cells_.back())[i];
        cell.value = reinterpret_cast<std::uint64_t*>(s->data) + i;
        cell.lkey = s->lkey;
        give(cell);
    }
    return true;
}

}  // namespace rdmacoro::detail::verbs
