#include "plan.hpp"

#include <algorithm>

namespace soak {

namespace {

/// Each power of two is as likely as any other.
std::size_t length(random& from, std::size_t longest) {
    unsigned powers = 1;
    while ((std::size_t{1} << powers) < longest) ++powers;
    const std::uint64_t power = from.below(powers + 1);
    return std::min<std::size_t>(from.below(std::uint64_t{2} << power), longest);
}

std::byte byte_at(std::uint64_t content, std::size_t at) noexcept {
    const std::uint64_t mixed = (content + at / 8) * 0x9e3779b97f4a7c15;
    return static_cast<std::byte>(mixed >> (8 * (at % 8)));
}

}  // namespace

round_plan next_round(random& shared, std::size_t longest) {
    round_plan plan;
    const std::size_t often = std::min<std::size_t>(longest, shared.once_in(16) ? longest : 64 * 1024);
    plan.messages.resize(1 + shared.below(24));
    for (planned_message& m : plan.messages) {
        m.from_client = shared.once_in(2);
        m.tag = 1 + shared.below(5);
        m.bytes = length(shared, often);
        m.content = shared.next();
    }
    plan.in_step = shared.once_in(2);
    plan.any_tag = shared.once_in(3);
    plan.client_owns = shared.once_in(2);
    if (shared.once_in(3)) plan.exposed_bytes = 1 + shared.below(256 * 1024);
    plan.exposed_content = shared.next();
    if (shared.once_in(4)) plan.pause_ms = static_cast<unsigned>(shared.below(shared.once_in(8) ? 2000 : 50));
    const std::uint64_t end = shared.below(200);
    if (end < 4) plan.end = ending::close;
    if (end == 4) plan.end = ending::client_drops;
    if (end == 5) plan.end = ending::server_drops;
    // The end that drops may have nothing to wait for in this round: the other one is not to be in one before it.
    if (end == 4 || end == 5) plan.in_step = true;
    return plan;
}

void fill(std::span<std::byte> memory, std::uint64_t content) noexcept {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = byte_at(content, i);
}

bool holds(std::span<const std::byte> memory, std::uint64_t content, std::size_t offset) noexcept {
    for (std::size_t i = 0; i < memory.size(); ++i) {
        if (memory[i] != byte_at(content, offset + i)) return false;
    }
    return true;
}

}  // namespace soak
