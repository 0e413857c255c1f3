// Bodies of slots.hpp.
#pragma once

#include <rdmacoro/transport/ofi/slots.hpp>

namespace rdmacoro::detail::fabric {

RDMACORO_DECL int slot_registrar::add(std::span<std::byte> slab, std::span<slot> slots,
                                      unique_registration& made) const noexcept {
    if (!memory->needs_local()) return 0;
    const int failed = memory->add(slab, FI_SEND | FI_RECV | FI_READ | FI_WRITE, made);
    if (failed != 0) return failed;
    for (slot& s : slots) s.descriptor = ::fi_mr_desc(made.get());
    return 0;
}

}  // namespace rdmacoro::detail::fabric
