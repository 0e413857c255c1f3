// Bodies of frame.hpp: the greeting.
#pragma once

#include <rdmacoro/transport/verbs_rc/frame.hpp>

namespace rdmacoro::detail::verbs {

RDMACORO_DECL greeting::bytes greeting::store() const noexcept {
    bytes made{};
    store_number(made.data(), magic);
    store_number(made.data() + 4, version);
    store_number(made.data() + 8, slot_bytes);
    store_number(made.data() + 12, credits);
    store_number(made.data() + 16, refusal);
    store_number(made.data() + 20, reserved);
    return made;
}

RDMACORO_DECL errc greeting::load(const std::byte* from, std::size_t have) noexcept {
    if (have < wire_bytes) return errc::protocol_violation;
    magic = load_number<std::uint32_t>(from);
    version = load_number<std::uint32_t>(from + 4);
    slot_bytes = load_number<std::uint32_t>(from + 8);
    credits = load_number<std::uint32_t>(from + 12);
    refusal = load_number<std::uint32_t>(from + 16);
    reserved = load_number<std::uint32_t>(from + 20);
    if (magic != right_magic) return errc::protocol_violation;
    if (version != own_version) return errc::version_mismatch;
    const bool good = slot_bytes >= least_slot && slot_bytes <= most_slot && credits >= least_credits &&
                      credits <= most_credits;
    return good ? errc::ok : errc::protocol_violation;
}

}  // namespace rdmacoro::detail::verbs
