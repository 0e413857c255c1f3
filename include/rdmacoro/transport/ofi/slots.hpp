// Slots: registered memory of the domain that messages are received into, and staged in when they are sent.
#pragma once

#include <rdmacoro/transport/detail/slots.hpp>
#include <rdmacoro/transport/ofi/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

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

using slot_queue = detail::slot_queue<slot>;

/// Registers slots where the provider asks for that.
struct slot_registrar {
    using registration = unique_registration;

    memory_access* memory;

    [[nodiscard]] int add(std::span<std::byte> slab, std::span<slot> slots,
                          unique_registration& made) const noexcept {
        if (!memory->needs_local()) return 0;
        const int failed = memory->add(slab, FI_SEND | FI_RECV | FI_READ | FI_WRITE, made);
        if (failed != 0) return failed;
        for (slot& s : slots) s.descriptor = ::fi_mr_desc(made.get());
        return 0;
    }
};

/// All slots of a domain.
class slot_pool : public slabs_of_slots<slot, slot_registrar> {
public:
    slot_pool(memory_access& memory, std::size_t slot_bytes) noexcept
        : slabs_of_slots({&memory}, (slot_bytes + 63) & ~std::size_t{63}) {}

    void give(slot& s) noexcept {
        s.now = slot::use::free;
        slabs_of_slots::give(s);
    }
};

}  // namespace rdmacoro::detail::fabric
