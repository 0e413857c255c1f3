// Slots: registered memory of a domain that messages are received into, and staged in when they are sent.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace rdmacoro::detail {

/// A queue of slots, by their `next`.
template <class Slot>
struct slot_queue {
    Slot* first = nullptr;
    Slot* last = nullptr;

    [[nodiscard]] bool empty() const noexcept { return first == nullptr; }
    void push_back(Slot& s) noexcept {
        s.next = nullptr;
        (first == nullptr ? first : last->next) = &s;
        last = &s;
    }
    void push_front(Slot& s) noexcept {
        s.next = first;
        if (first == nullptr) last = &s;
        first = &s;
    }
    Slot* pop_front() noexcept {
        Slot* s = first;
        if (s != nullptr) first = s->next;
        return s;
    }
};

/// All slots of a domain, cut from slabs that are registered whole. Grows when links open, so that nothing is registered while
/// messages move; never shrinks.
///
/// `Slot` has `next` and `data`. `Registrar` is how a slab is registered: `registration` ends it when it is destroyed, and
/// `add(memory, slots, registration&)` makes it and writes to the slots the key that posts need; 0, or the negative number of an error.
template <class Slot, class Registrar>
class slabs_of_slots {
public:
    using slot_type = Slot;

    slabs_of_slots(const Registrar& registrar, std::size_t slot_bytes) noexcept
        : registrar_(registrar), slot_bytes_(slot_bytes) {}
    slabs_of_slots(const slabs_of_slots&) = delete;
    slabs_of_slots& operator=(const slabs_of_slots&) = delete;

    [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
    [[nodiscard]] std::size_t slots() const noexcept { return slots_; }
    /// Bytes that could not be registered when `reserve` fails, for the error message.
    [[nodiscard]] std::size_t slab_bytes() const noexcept { return slots_of_slab * slot_bytes_; }

    /// Makes sure that `count` more can be in use at a time. 0, or the negative number of an error.
    [[nodiscard]] int reserve(std::size_t count) noexcept {
        while (slots_ < reserved_ + count) {
            if (const int failed = grow(); failed != 0) return failed;
        }
        reserved_ += count;
        return 0;
    }
    void unreserve(std::size_t count) noexcept { reserved_ -= std::min(count, reserved_); }

    [[nodiscard]] Slot* take() noexcept { return free_.pop_front(); }
    void give(Slot& s) noexcept { free_.push_front(s); }

    template <class Function>
    void for_each(Function function) noexcept {
        for (slab& one : slabs_) {
            for (Slot& s : one.cut()) function(s);
        }
    }

    /// Ends the registrations: the endpoint that they are bound to is about to be closed.
    void unregister() noexcept {
        for (slab& one : slabs_) one.registration.reset();
    }
    /// Registers all slabs with the new endpoint. 0, or the negative number of an error.
    [[nodiscard]] int register_again() noexcept {
        for (slab& one : slabs_) {
            if (one.registration != nullptr) continue;
            if (const int failed = add(one); failed != 0) return failed;
        }
        return 0;
    }

private:
    static constexpr std::size_t slots_of_slab = 64;

    struct unmap {
        std::size_t bytes;
        void operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }
    };
    struct slab {
        std::unique_ptr<std::byte, unmap> memory;
        typename Registrar::registration registration;  // goes first
        std::unique_ptr<Slot[]> slots;

        [[nodiscard]] std::span<Slot> cut() const noexcept { return {slots.get(), slots_of_slab}; }
    };

    [[nodiscard]] int add(slab& one) noexcept {
        return registrar_.add({one.memory.get(), slab_bytes()}, one.cut(), one.registration);
    }

    [[nodiscard]] int grow() noexcept {
        slab made;
        const std::size_t bytes = slab_bytes();
        void* mapped =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (mapped == MAP_FAILED) return -errno;
        made.memory = {static_cast<std::byte*>(mapped), unmap{bytes}};
        made.slots.reset(new (std::nothrow) Slot[slots_of_slab]);
        if (made.slots == nullptr) return -ENOMEM;
        if (const int failed = add(made); failed != 0) return failed;
        try {
            slabs_.reserve(slabs_.size() + 1);
        } catch (const std::bad_alloc&) {
            return -ENOMEM;
        }
        for (std::size_t i = slots_of_slab; i-- > 0;) {
            Slot& s = made.slots[i];
            s.data = made.memory.get() + i * slot_bytes_;
            free_.push_front(s);
        }
        slabs_.push_back(std::move(made));
        slots_ += slots_of_slab;
        return 0;
    }

    Registrar registrar_;
    std::size_t slot_bytes_;
    std::vector<slab> slabs_;
    slot_queue<Slot> free_;
    std::size_t slots_ = 0;
    std::size_t reserved_ = 0;
};

}  // namespace rdmacoro::detail
