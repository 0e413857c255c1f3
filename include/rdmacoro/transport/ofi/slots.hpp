// Slots: registered memory of the domain that messages are received into, and staged in when they are sent.
#pragma once

#include <rdmacoro/transport/ofi/memory.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace rdmacoro::detail::fabric {

/// What the provider is given with a post and gives back with its completion. The provider's scratch comes first.
struct operation {
    enum class kind : std::uint8_t { slot, transfer, tagged };

    explicit operation(kind k) noexcept : what(k) {}

    fi_context2 scratch{};
    const kind what;
};

/// One slot.
struct slot : operation {
    enum class use : std::uint8_t { free, posted, holds, lent, sending, tagged };

    slot() noexcept : operation(kind::slot) {}

    slot* next = nullptr;  // in a list of its state
    std::byte* data = nullptr;
    void* descriptor = nullptr;
    std::uint32_t bytes = 0;  // of what came
    use now = use::free;
    std::uint32_t place = 0;  // whose message is being sent
    std::uint64_t of = 0;     // that link's number
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
    slot_pool(memory_access& memory, std::size_t slot_bytes) noexcept
        : memory_(memory), slot_bytes_((slot_bytes + 63) & ~std::size_t{63}) {}
    slot_pool(const slot_pool&) = delete;
    slot_pool& operator=(const slot_pool&) = delete;

    [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
    [[nodiscard]] std::size_t slots() const noexcept { return slots_; }
    [[nodiscard]] std::size_t slab_bytes() const noexcept { return slots_of_slab * slot_bytes_; }

    /// Sees to it that `count` more can be in use at a time. 0, or libfabric's negative number.
    [[nodiscard]] int reserve(std::size_t count) noexcept {
        while (slots_ < reserved_ + count) {
            if (const int failed = grow(); failed != 0) return failed;
        }
        reserved_ += count;
        return 0;
    }
    void unreserve(std::size_t count) noexcept { reserved_ -= count; }

    [[nodiscard]] slot* take() noexcept { return free_.pop_front(); }
    void give(slot& s) noexcept {
        s.now = slot::use::free;
        free_.push_front(s);
    }

    template <class Function>
    void for_each(Function function) noexcept {
        for (slab& one : slabs_) {
            for (std::size_t i = 0; i < slots_of_slab; ++i) function(one.slots[i]);
        }
    }

    /// The endpoint that the registrations are bound to is about to go.
    void unregister() noexcept {
        for (slab& one : slabs_) one.registration.reset();
    }
    /// There is another endpoint. 0, or libfabric's negative number.
    [[nodiscard]] int register_again() noexcept {
        for (slab& one : slabs_) {
            if (one.registration != nullptr) continue;
            if (const int failed = describe(one); failed != 0) return failed;
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
        unique_registration registration;  // goes first
        std::unique_ptr<slot[]> slots;
    };

    [[nodiscard]] int describe(slab& one) noexcept {
        if (!memory_.needs_local()) return 0;
        const int failed = memory_.add({one.memory.get(), slab_bytes()},
                                       FI_SEND | FI_RECV | FI_READ | FI_WRITE, one.registration);
        for (std::size_t i = 0; failed == 0 && i < slots_of_slab; ++i)
            one.slots[i].descriptor = ::fi_mr_desc(one.registration.get());
        return failed;
    }

    [[nodiscard]] int grow() noexcept {
        slab made;
        const std::size_t bytes = slab_bytes();
        void* mapped =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (mapped == MAP_FAILED) return -FI_ENOMEM;
        made.memory = {static_cast<std::byte*>(mapped), unmap{bytes}};
        made.slots.reset(new (std::nothrow) slot[slots_of_slab]);
        if (made.slots == nullptr) return -FI_ENOMEM;
        if (const int failed = describe(made); failed != 0) return failed;
        try {
            slabs_.reserve(slabs_.size() + 1);
        } catch (const std::bad_alloc&) {
            return -FI_ENOMEM;
        }
        for (std::size_t i = slots_of_slab; i-- > 0;) {
            slot& s = made.slots[i];
            s.data = made.memory.get() + i * slot_bytes_;
            free_.push_front(s);
        }
        slabs_.push_back(std::move(made));
        slots_ += slots_of_slab;
        return 0;
    }

    memory_access& memory_;
    std::size_t slot_bytes_;
    std::vector<slab> slabs_;
    slot_queue free_;
    std::size_t slots_ = 0;
    std::size_t reserved_ = 0;
};

}  // namespace rdmacoro::detail::fabric
