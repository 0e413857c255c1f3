// Slots: registered memory of the domain that messages are received into, and staged in when they are sent.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/detail/slots.hpp>
#include <rdmacoro/transport/ofi/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro::detail::fabric {

/// The context of a post, which the provider returns with the completion. The provider's scratch comes first.
struct operation {
    enum class kind : std::uint8_t { slot, transfer, tagged };

    explicit operation(kind k) noexcept : what(k) {}

    fi_context2 scratch{};
    const kind what;
};

/// One slot.
struct slot : operation {
    /// The provider's use of the slot: none (`idle`), receive into it, send it, or send it by a tagged endpoint.
    enum class use : std::uint8_t { idle, posted, sending, tagged };

    slot() noexcept : operation(kind::slot) {}

    slot* next = nullptr;  // in a list of its state
    std::byte* data = nullptr;
    void* descriptor = nullptr;
    std::uint32_t bytes = 0;  // of the frame that arrived
    use now = use::idle;
    std::uint64_t of = 0;  // number of the link that sends the message
};

using slot_queue = detail::slot_queue<slot>;

/// Registers slots where the provider requires it.
struct slot_registrar {
    using registration = unique_registration;

    memory_access* memory;

    [[nodiscard]] int add(std::span<std::byte> slab, std::span<slot> slots,
                          unique_registration& made) const noexcept;
};

/// All slots of a domain.
class slot_pool : public slabs_of_slots<slot, slot_registrar> {
public:
    slot_pool(memory_access& memory, std::size_t slot_bytes) noexcept
        : slabs_of_slots({&memory}, (slot_bytes + 63) & ~std::size_t{63}) {}

    void give(slot& s) noexcept {
        s.now = slot::use::idle;
        slabs_of_slots::give(s);
    }
};

}  // namespace rdmacoro::detail::fabric

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/slots.ipp>
#endif
