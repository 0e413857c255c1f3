// Slots: registered memory of the domain that messages are received into, and staged in when they are sent.
#pragma once

#include <rdmacoro/transport/verbs_rc/device.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace rdmacoro::detail::verbs {

class core;

/// One slot. At any time it is free, posted to be received into, holds a message that came, is lent, or is being sent.
struct alignas(64) slot {
    slot* next = nullptr;  // in a list of its state
    std::byte* data = nullptr;
    std::uint32_t lkey = 0;
    std::uint32_t bytes = 0;  // of what came
};

/// Eight bytes of a slot that the device writes the result of an atomic to.
struct result_cell {
    result_cell* next = nullptr;
    std::uint64_t* value = nullptr;
    std::uint32_t lkey = 0;
};

/// A queue of slots.
struct slot_queue {
    slot* first = nullptr;
    slot* last = nullptr;

    [[nodiscard]] bool empty() const noexcept { return first == nullptr; }
    void push_back(slot& s) noexcept {
        s.next = nullptr;
        (first == nullptr ? first : last->next) = &s;
        last = &s;
    }
    void push_front(slot& s) noexcept {
        s.next = first;
        if (first == nullptr) last = &s;
        first = &s;
    }
    slot* pop_front() noexcept {
        slot* s = first;
        if (s != nullptr) first = s->next;
        return s;
    }
};

/// All slots of a domain. Grows when links open, so that nothing is registered while messages move; never shrinks.
class slot_pool {
public:
    slot_pool(ibv_pd* domain, std::size_t slot_bytes) noexcept : domain_(domain), slot_bytes_(slot_bytes) {}
    slot_pool(const slot_pool&) = delete;
    slot_pool& operator=(const slot_pool&) = delete;

    [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
    [[nodiscard]] std::size_t slots() const noexcept { return slots_; }

    /// Sees to it that `count` more can be in use at a time. False: the number of the system's error is in `errno`.
    [[nodiscard]] bool reserve(std::size_t count) noexcept {
        while (slots_ < reserved_ + count) {
            if (!grow()) return false;
        }
        reserved_ += count;
        return true;
    }
    void unreserve(std::size_t count) noexcept { reserved_ -= count; }

    [[nodiscard]] slot* take() noexcept { return free_.pop_front(); }
    void give(slot& s) noexcept { free_.push_front(s); }

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

    /// What a message's end would be told if growing failed.
    [[nodiscard]] std::size_t slab_bytes() const noexcept { return slots_of_slab * slot_bytes_; }

private:
    static constexpr std::size_t slots_of_slab = 64;

    struct unmap {
        std::size_t bytes;
        void operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }
    };
    struct slab {
        std::unique_ptr<std::byte, unmap> memory;
        unique_registration registration;  // goes first
        std::unique_ptr<slot[]> slots;
    };

    [[nodiscard]] bool grow() noexcept {
        slab made;
        const std::size_t bytes = slab_bytes();
        void* mapped =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (mapped == MAP_FAILED) return false;
        made.memory = {static_cast<std::byte*>(mapped), unmap{bytes}};
        made.registration.reset((::ibv_reg_mr)(domain_, mapped, bytes, IBV_ACCESS_LOCAL_WRITE));
        if (made.registration == nullptr) return false;
        made.slots.reset(new (std::nothrow) slot[slots_of_slab]);
        errno = ENOMEM;
        if (made.slots == nullptr) return false;
        try {
            slabs_.reserve(slabs_.size() + 1);
        } catch (const std::bad_alloc&) {
            return false;
        }
        for (std::size_t i = slots_of_slab; i-- > 0;) {
            slot& s = made.slots[i];
            s.data = made.memory.get() + i * slot_bytes_;
            s.lkey = made.registration->lkey;
            free_.push_front(s);
        }
        slabs_.push_back(std::move(made));
        slots_ += slots_of_slab;
        return true;
    }

    [[nodiscard]] bool grow_cells() noexcept {
        constexpr std::size_t cells = 256;
        if (!reserve(1)) return false;
        slot* s = take();
        try {
            if (s != nullptr) cells_.push_back(std::make_unique<std::array<result_cell, cells>>());
        } catch (const std::bad_alloc&) {
            give(*std::exchange(s, nullptr));
        }
        if (s == nullptr) {
            unreserve(1);
            return false;
        }
        for (std::size_t i = 0; i < cells; ++i) {
            result_cell& cell = (*cells_.back())[i];
            cell.value = reinterpret_cast<std::uint64_t*>(s->data) + i;
            cell.lkey = s->lkey;
            give(cell);
        }
        return true;
    }

    ibv_pd* domain_;
    std::size_t slot_bytes_;
    std::vector<slab> slabs_;
    std::vector<std::unique_ptr<std::array<result_cell, 256>>> cells_;
    result_cell* free_cells_ = nullptr;
    slot_queue free_;
    std::size_t slots_ = 0;
    std::size_t reserved_ = 0;
};

}  // namespace rdmacoro::detail::verbs
