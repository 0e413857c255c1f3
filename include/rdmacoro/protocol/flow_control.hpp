// Credits: how a receiver bounds the memory that messages nobody asked for yet may take.
//
// A receiver grants each peer a budget of memory. A message that may arrive unasked costs what it would take to keep it;
// its sender pays from the budget before it sends, and waits when it can't. What a message cost is given back when the
// receiver no longer keeps it, in the header of whatever is sent next, or in a message of its own once half of the budget is
// owed: more than one message may cost, so that an answer to it usually carries its credit.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// The unit in which memory is granted.
inline constexpr std::size_t credit_bytes = 64;

/// What keeping a message takes besides its payload; generous for every build, as both sides must agree on it.
inline constexpr std::size_t kept_message_overhead = 192;

/// The smallest size class.
inline constexpr std::size_t least_storage = 256;

/// The size class that a kept message of `payload` bytes is stored in, in bytes: four classes for each doubling.
[[nodiscard]] constexpr std::size_t storage_bytes(std::size_t payload) noexcept {
    if (payload <= least_storage - kept_message_overhead) [[likely]]
        return least_storage;
    const std::size_t wanted = payload + kept_message_overhead;
    const std::size_t step = std::bit_floor(wanted - 1) / 4;
    return (wanted + step - 1) / step * step;
}

/// What a message of `payload` bytes costs.
[[nodiscard]] constexpr std::uint32_t message_cost(std::size_t payload) noexcept {
    return static_cast<std::uint32_t>((storage_bytes(payload) + credit_bytes - 1) / credit_bytes);
}

/// Of a message longer than this only so much may be sent before the receiver says that it has a place for it.
[[nodiscard]] constexpr std::size_t unasked_bytes(std::uint32_t budget) noexcept {
    return std::size_t{budget} * credit_bytes / 4;
}

/// Budgets that a link works with: at least four times what the longest message sent unasked may cost.
inline constexpr std::uint32_t least_budget = 4096;  // 256 KiB

/// Both ends of one link's credits.
class credit_account {
public:
    /// What we grant, in `credit_bytes`.
    explicit credit_account(std::uint32_t granted) noexcept : granted_(granted), overdue_(granted / 2) {}

    /// The peer's hello said what it grants us.
    void opened(std::uint32_t budget) noexcept { available_ = peer_budget_ = budget; }
    [[nodiscard]] std::uint32_t peer_budget() const noexcept { return peer_budget_; }
    [[nodiscard]] std::uint32_t granted() const noexcept { return granted_; }

    // Sending.
    [[nodiscard]] bool take(std::uint32_t cost) noexcept {
        if (cost > available_) return false;
        available_ -= cost;
        return true;
    }
    void untake(std::uint32_t cost) noexcept { available_ += cost; }
    /// The peer gave credits back; false when it gives more than it got.
    [[nodiscard]] bool returned(std::uint32_t credits) noexcept {
        if (credits > peer_budget_ - available_) return false;
        available_ += credits;
        return true;
    }
    [[nodiscard]] std::uint32_t available() const noexcept { return available_; }

    // Receiving.
    /// A message came that costs this; false when the peer spent more than it was granted.
    [[nodiscard]] bool charge(std::uint32_t cost) noexcept {
        if (cost > granted_ - charged_) return false;
        charged_ += cost;
        return true;
    }
    /// A message came and went on at once; false when the peer spent more than it was granted.
    [[nodiscard]] bool pass(std::uint32_t cost) noexcept {
        charged_ += cost;
        owed_ += cost;
        return charged_ <= granted_;
    }
    /// What a message cost is free again.
    void release(std::uint32_t cost) noexcept { owed_ += cost; }
    /// What to say in the next header.
    [[nodiscard]] std::uint16_t payable() const noexcept {
        return static_cast<std::uint16_t>(owed_ < 0xffff ? owed_ : 0xffff);
    }
    /// It was sent.
    void paid(std::uint16_t credits) noexcept {
        owed_ -= credits;
        charged_ -= credits;
    }
    /// Enough is owed to be worth a message of its own.
    [[nodiscard]] bool overdue() const noexcept { return owed_ >= overdue_; }

private:
    // `owed_` and `charged_` change together and are read apart: beside each other they would be written as one word and
    // read as two, or the other way round, which a processor is slow to forward.
    std::uint32_t owed_ = 0;
    std::uint32_t available_ = 0;
    std::uint32_t peer_budget_ = 0;
    std::uint32_t granted_;
    std::uint32_t charged_ = 0;
    std::uint32_t overdue_;
};

}  // namespace rdmacoro::detail
