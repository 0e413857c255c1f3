// receive_pool: the slots that a domain receives into, and in which state each of them is.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <rdmacoro/transport/detail/slots.hpp>

namespace rdmacoro::detail {

/// Where a `receive_pool` takes its slots from:
///  1. `take()` gives an unused slot, or nullptr;
///  2. `give(slot)` makes it unused.
template <class Slots>
concept slot_source = requires(Slots& from, typename Slots::slot_type& s) {
    { from.take() } noexcept -> std::same_as<typename Slots::slot_type*>;
    { from.give(s) } noexcept;
};

/// Slots for the frames that all links of a domain may receive, shared by the links. A slot is *queued* to be posted, *posted*
/// (with the device), *held* (it has a frame that was not consumed yet), or *lent* to a user. Only lent slots are outside the
/// count of wanted slots; a spare one takes the place of each.
template <slot_source Slots>
class receive_pool {
public:
    using slot = typename Slots::slot_type;

    receive_pool(Slots& slots, std::size_t most_lent) noexcept : slots_(slots), most_lent_(most_lent) {}
    receive_pool(const receive_pool&) = delete;
    receive_pool& operator=(const receive_pool&) = delete;

    /// The device takes no more slots than `count` at a time; without a call, any number.
    void limit_posted(std::size_t count) noexcept { most_posted_ = count; }

    /// Slots for one more link, and for one less.
    void add_wanted(std::size_t count) noexcept {
        wanted_ += count;
        refill();
    }
    void remove_wanted(std::size_t count) noexcept { wanted_ -= count; }
    [[nodiscard]] std::size_t wanted() const noexcept { return wanted_; }
    [[nodiscard]] std::size_t posted() const noexcept { return posted_; }
    [[nodiscard]] std::size_t held() const noexcept { return held_; }
    [[nodiscard]] std::size_t lent() const noexcept { return lent_; }
    [[nodiscard]] std::size_t queued() const noexcept { return queued_; }
    /// Whether the last recycled slot was not needed: links that are closed had wanted it.
    [[nodiscard]] bool surplus() const noexcept { return surplus_; }

    /// The next slot to hand to the device, which counts as posted from now on; nullptr: none is queued, or the device has all
    /// that it takes.
    [[nodiscard]] slot* next_to_post() noexcept {
        if (posted_ >= most_posted_) [[unlikely]]
            return nullptr;
        slot* s = to_post_.pop_front();
        if (s == nullptr) return nullptr;
        --queued_;
        ++posted_;
        return s;
    }
    /// The device did not take the slot, or gave it back unused: it is queued again, before all others.
    void not_posted(slot& s) noexcept {
        --posted_;
        ++queued_;
        to_post_.push_front(s);
    }

    /// A posted slot has a frame. Where the device takes fewer slots than are wanted, another slot takes its place, so that one
    /// slow reader does not starve the other links.
    void arrived() noexcept {
        --posted_;
        ++held_;
        if (wanted_ > most_posted_) [[unlikely]]
            refill();
    }
    /// The frame of a held slot is consumed.
    void recycle(slot& s) noexcept {
        --held_;
        queue(s);
    }

    /// A held slot is lent to a user; another takes its place. False: as many are lent as may be.
    [[nodiscard]] bool lend(slot&) noexcept {
        if (lent_ == most_lent_) return false;
        slot* spare = slots_.take();
        if (spare == nullptr) return false;
        ++lent_;
        --held_;
        queue(*spare);
        return true;
    }
    void give_back_lent(slot& s) noexcept {
        --lent_;
        slots_.give(s);
    }

private:
    /// Slots that should be posted or queued now.
    [[nodiscard]] std::size_t due() const noexcept {
        const std::size_t missing = wanted_ > held_ ? wanted_ - held_ : 0;
        return missing < most_posted_ ? missing : most_posted_;
    }
    void queue(slot& s) noexcept {
        surplus_ = posted_ + queued_ >= due();
        if (surplus_) return slots_.give(s);
        to_post_.push_back(s);
        ++queued_;
    }
    void refill() noexcept {
        while (posted_ + queued_ < due()) {
            slot* s = slots_.take();
            if (s == nullptr) return;
            to_post_.push_back(*s);
            ++queued_;
        }
    }

    Slots& slots_;
    std::size_t most_posted_ = std::numeric_limits<std::size_t>::max();
    std::size_t most_lent_;
    std::size_t wanted_ = 0;
    std::size_t posted_ = 0;
    std::size_t queued_ = 0;
    std::size_t held_ = 0;
    std::size_t lent_ = 0;
    bool surplus_ = false;
    slot_queue<slot> to_post_;
};

}  // namespace rdmacoro::detail
