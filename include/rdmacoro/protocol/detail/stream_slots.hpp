// Numbered slots of the streams of one side, and what is still to be said of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <new>
#include <vector>

namespace rdmacoro::detail {

/// Slots that are found by number and stay in place. `Slot` has `std::uint32_t next_free` and `std::uint8_t owed`, a set of
/// bits: messages that could not be said yet for want of room.
template <class Slot>
class stream_slots {
public:
    static constexpr std::uint32_t none = 0xffffffff;

    [[nodiscard]] Slot& operator[](std::uint32_t id) noexcept { return all_[id]; }
    [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(all_.size()); }
    [[nodiscard]] auto begin() noexcept { return all_.begin(); }
    [[nodiscard]] auto end() noexcept { return all_.end(); }

    /// Whether `take` would need more than `most` slots.
    [[nodiscard]] bool exhausted(std::uint32_t most) const noexcept {
        return free_ == none && size() >= most;
    }
    /// The number of a free slot; `none` when memory is short.
    [[nodiscard]] std::uint32_t take() noexcept {
        if (free_ != none) {
            const std::uint32_t id = free_;
            free_ = all_[id].next_free;
            return id;
        }
        const std::uint32_t id = size();
        return reach(id) ? id : none;
    }
    void give(std::uint32_t id) noexcept {
        all_[id].next_free = free_;
        free_ = id;
    }

    /// Makes slot `id` be there. False when memory is short.
    [[nodiscard]] bool reach(std::uint32_t id) noexcept try {
        while (size() <= id) {
            unsaid_.reserve(all_.size() + 1);  // so that owing never allocates
            all_.emplace_back();
        }
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }

    /// There is something to be said of slot `id`. False: that is remembered already.
    bool remember(std::uint32_t id) noexcept {
        if (std::find(unsaid_.begin(), unsaid_.end(), id) != unsaid_.end()) return false;
        unsaid_.push_back(id);
        return true;
    }
    /// Calls `say(id)` for each that was remembered, oldest first; it may remember it again.
    template <class Say>
    void say_all(Say say) noexcept {
        for (std::size_t n = unsaid_.size(); n > 0 && !unsaid_.empty(); --n) {
            const std::uint32_t id = unsaid_.front();
            unsaid_.erase(unsaid_.begin());
            say(id);
        }
    }
    void forget_unsaid() noexcept { unsaid_.clear(); }

private:
    std::deque<Slot> all_;
    std::vector<std::uint32_t> unsaid_;
    std::uint32_t free_ = none;
};

}  // namespace rdmacoro::detail
