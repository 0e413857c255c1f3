// Bodies of detail/owed_messages.hpp.
#pragma once

#include <rdmacoro/protocol/detail/owed_messages.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD void owed_messages::owe(std::uint32_t id, std::uint8_t messages) noexcept {
    owing_slot& s = owing(id);
    s.owed = static_cast<std::uint8_t>(s.owed | messages);
    if (!send_owed_on(id) && slots_.remember(id)) connection_.under_way();  // no goodbye before it
}

RDMACORO_COLD bool owed_messages::send_owed_on(std::uint32_t id) noexcept {
    owing_slot& s = owing(id);
    for (unsigned bit = 1; bit <= s.owed; bit <<= 1) {
        const auto message = static_cast<std::uint8_t>(bit);
        if ((s.owed & message) == 0) continue;
        if (send_owed(id, message) != post_result::done) return false;
        s.owed = static_cast<std::uint8_t>(s.owed & ~message);
        owed_sent(id, message);
    }
    return true;
}

RDMACORO_COLD void owed_messages::send_remembered() noexcept {
    for (std::uint32_t n = slots_.remembered(); n > 0; --n) {
        const std::uint32_t id = slots_.take_remembered();
        if (id == slot_table::none) return;
        const bool refused = !send_owed_on(id);
        if (refused && slots_.remember_first(id)) return;  // so would the others be
        connection_.settled();
        if (refused) return;
    }
}

RDMACORO_COLD void owed_messages::forget_owed() noexcept {
    slots_.forget_unsaid();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) owing(id).owed = 0;
}

}  // namespace rdmacoro::detail
