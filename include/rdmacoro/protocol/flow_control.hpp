// Credits: how a receiver bounds the memory that messages without a receive may take.
//
// A receiver grants each peer a budget of memory. A message that may arrive unasked costs the memory to store it; its
// sender pays from the budget before it sends, and waits when it can't. A message's cost is given back when the
// receiver no longer stores it, in the header of the next message sent, or in a message of its own once half of the
// budget is owed: more than one message may cost, so that an answer to it usually carries its credit. A sender that
// waits for credit says so (`starved`): from then on less than half is worth a message, and what an idle link owes is
// given back in full.
//
// Of the budget a link is granted a part at first. The rest is withheld, which is the same to the account as if messages
// took it. A grant rises as credit that is given back, and shrinks by credit that is not.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// The unit in which memory is granted.
inline constexpr std::size_t credit_bytes = 64;

/// Memory of a stored message besides its payload; generous for every build, as both sides must agree on it.
inline constexpr std::size_t kept_message_overhead = 192;

/// The smallest size class.
inline constexpr std::size_t least_storage = 256;

/// The size class that a message of `payload` bytes is stored in, in bytes: four classes for each doubling.
[[nodiscard]] constexpr std::size_t storage_bytes(std::size_t payload) noexcept {
    if (payload <= least_storage - kept_message_overhead) [[likely]]
        return least_storage;
    const std::size_t wanted = payload + kept_message_overhead;
    const std::size_t step = std::bit_floor(wanted - 1) / 4;
    return (wanted + step - 1) / step * step;
}

/// The cost of a message of `payload` bytes.
[[nodiscard]] constexpr std::uint32_t message_cost(std::size_t payload) noexcept {
    return static_cast<std::uint32_t>((storage_bytes(payload) + credit_bytes - 1) / credit_bytes);
}

/// The longest payload that takes at most `storage` bytes when it is stored. Precondition: `storage` is at least `least_storage`.
[[nodiscard]] constexpr std::size_t payload_stored_in(std::size_t storage) noexcept {
    const std::size_t doubling = std::bit_floor(storage);
    const std::size_t step = doubling / 4;
    return doubling + (storage - doubling) / step * step - kept_message_overhead;
}

/// Of a message longer than this only so much may be sent before the receiver has a place for it. A message that goes
/// at once costs at most as much, unless its list has no other way for it; see `connection_base::limit_unasked`.
[[nodiscard]] constexpr std::size_t unasked_bytes(std::uint32_t budget) noexcept {
    return std::size_t{budget} * credit_bytes / 4;
}

/// The smallest budget of a link.
inline constexpr std::uint32_t least_budget = 4096;  // 256 KiB

/// The smallest grant of a link with a list that can send messages ahead of their turn.
inline constexpr std::uint32_t least_grant = 256;  // 16 KiB

/// Both ends of one link's credits.
class credit_account {
public:
    /// This side's budget for the peer, and what of it is not granted yet, in `credit_bytes`.
    explicit credit_account(std::uint32_t granted, std::uint32_t withheld = 0) noexcept
        : granted_(granted), charged_(withheld), overdue_((granted - withheld) / 2), withheld_(withheld) {}

    /// The peer's hello came with its budget, and what of it is not granted yet. Precondition: that is no more than the budget.
    void opened(std::uint32_t budget, std::uint32_t withheld = 0) noexcept {
        peer_budget_ = budget;
        available_ = budget - withheld;
    }
    [[nodiscard]] std::uint32_t peer_budget() const noexcept { return peer_budget_; }
    /// The budget.
    [[nodiscard]] std::uint32_t granted() const noexcept { return granted_; }
    /// The part that the peer may use at present.
    [[nodiscard]] std::uint32_t grant() const noexcept { return granted_ - withheld_; }
    [[nodiscard]] std::uint32_t withheld() const noexcept { return withheld_; }

    /// The grant rises, by so much of what is withheld.
    void grant_more(std::uint32_t units) noexcept {
        const bool in_haste = hurried();
        withheld_ -= units;
        owed_ += units;
        if (!in_haste) take_time();
    }
    /// The peer gave up so much of its grant; false when it has not got it.
    [[nodiscard]] bool taken_back(std::uint32_t units) noexcept {
        if (units > granted_ - charged_) return false;
        const bool in_haste = hurried();
        charged_ += units;
        withheld_ += units;
        if (!in_haste) take_time();
        return true;
    }
    /// The grant shrinks by what is owed, so much at most. Returns by how much.
    [[nodiscard]] std::uint32_t withhold(std::uint32_t most) noexcept {
        const bool in_haste = hurried();
        const std::uint32_t units = most < owed_ ? most : owed_;
        owed_ -= units;
        withheld_ += units;
        if (!in_haste) take_time();
        return units;
    }

    // Sending.
    [[nodiscard]] bool take(std::uint32_t cost) noexcept {
        if (cost > available_) return false;
        available_ -= cost;
        return true;
    }
    /// Whether there is credit for a message of so many bytes, as far as it may come unasked.
    [[nodiscard]] bool covers(std::size_t bytes) const noexcept {
        const std::size_t unasked = unasked_bytes(peer_budget_);
        return message_cost(bytes < unasked ? bytes : unasked) <= available_;
    }
    void untake(std::uint32_t cost) noexcept { available_ += cost; }
    /// The peer gave credits back; false when it gives more than it got.
    [[nodiscard]] bool returned(std::uint32_t credits) noexcept {
        if (credits > peer_budget_ - available_) return false;
        available_ += credits;
        return true;
    }
    [[nodiscard]] std::uint32_t available() const noexcept { return available_; }
    /// The peer wants so much of its grant back. Returns how much it gets.
    [[nodiscard]] std::uint32_t give_up(std::uint32_t most) noexcept {
        const std::uint32_t units = most < available_ ? most : available_;
        available_ -= units;
        return units;
    }

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
    /// A message's cost is free again.
    void release(std::uint32_t cost) noexcept { owed_ += cost; }
    /// Credits to give back in the next header.
    [[nodiscard]] std::uint16_t payable() const noexcept {
        return static_cast<std::uint16_t>(owed_ < 0xffff ? owed_ : 0xffff);
    }
    /// The header was sent.
    void paid(std::uint16_t credits) noexcept {
        owed_ -= credits;
        charged_ -= credits;
    }
    /// Enough is owed to be worth a message of its own: half of the grant, or less while the peer is short.
    [[nodiscard]] bool overdue() const noexcept { return owed_ >= overdue_; }
    /// The peer waits for credit: from now on this much is worth a message.
    void hurry(std::uint32_t least) noexcept { overdue_ = least; }
    void take_time() noexcept { overdue_ = grant() / 2; }
    [[nodiscard]] bool hurried() const noexcept { return overdue_ != grant() / 2; }
    [[nodiscard]] bool owes() const noexcept { return owed_ != 0; }
    /// What the peer has not got: it changes when the peer spends credit, gets it or gives it up, and at nothing else.
    [[nodiscard]] std::uint32_t charged() const noexcept { return charged_; }
    /// Memory of stored messages: it may be owed later.
    [[nodiscard]] std::uint32_t stored() const noexcept { return charged_ - owed_ - withheld_; }

private:
    // `owed_` and `charged_` change together and are read apart: beside each other they would be written as one word and
    // read as two, or the other way round, which a processor is slow to forward.
    std::uint32_t owed_ = 0;
    std::uint32_t available_ = 0;
    std::uint32_t peer_budget_ = 0;
    std::uint32_t granted_;
    std::uint32_t charged_;
    std::uint32_t overdue_;
    std::uint32_t withheld_;
};

}  // namespace rdmacoro::detail
