// receive_window: flow control of one link. A message is sent only when the peer has a receive slot for it.
#pragma once

#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// Credits of both directions. A *credit* is the right to send one frame. The receiver owes it back when it has consumed the
/// frame, and returns it inside a frame of its own.
class receive_window {
public:
    /// The peer has `credits` slots for this side's frames.
    void open_sending(std::uint32_t credits) noexcept { credits_ = most_credits_ = credits; }
    /// This side has `credits` slots for the peer's frames.
    void open_receiving(std::uint32_t credits) noexcept { granted_ = capacity_ = credits; }

    // ---- sending

    /// Frames that may be sent before the peer returns credits.
    [[nodiscard]] std::uint32_t credits() const noexcept { return credits_; }
    /// Whether more than half of the frames that the peer gave credits for may be sent.
    [[nodiscard]] bool mostly_free() const noexcept { return credits_ > most_credits_ / 2; }
    /// Precondition: `credits() != 0`.
    void spend() noexcept { --credits_; }
    /// The peer returns credits. False, and nothing done: it returns more than were spent.
    [[nodiscard]] bool regain(std::uint32_t returned) noexcept {
        if (returned > most_credits_ - credits_) [[unlikely]]
            return false;
        credits_ += returned;
        return true;
    }

    // ---- receiving

    /// Frames that the peer may still send.
    [[nodiscard]] std::uint32_t granted() const noexcept { return granted_; }
    /// A frame arrived that returns credits. False, and nothing done: the peer had no credit for it, or returns too many.
    [[nodiscard]] bool admit(std::uint32_t returned) noexcept {
        if (granted_ == 0 || !regain(returned)) [[unlikely]]
            return false;
        --granted_;
        return true;
    }

    /// The slot of a frame is free again: its credit is to be returned.
    void owe() noexcept { ++owed_; }
    /// A frame is consumed and its slot is to be handed to the device again; its credit is to be returned when that is done, as
    /// a change of `epoch` shows.
    void owe_after(std::uint64_t epoch) noexcept {
        settle(epoch);
        epoch_ = epoch;
        ++freed_;
    }
    /// Slots that were freed in an earlier epoch are with the device.
    void settle(std::uint64_t epoch) noexcept {
        if (freed_ != 0 && epoch_ != epoch) owed_ += std::exchange(freed_, 0);
    }

    /// Credits to be returned with the next frame.
    [[nodiscard]] std::uint16_t owed() const noexcept { return static_cast<std::uint16_t>(owed_); }
    /// A frame with `owed()` credits is sent.
    void returned() noexcept { granted_ += std::exchange(owed_, 0); }
    /// Whether a frame should be sent for the credits alone.
    [[nodiscard]] bool return_due() const noexcept { return owed_ >= capacity_ / 2; }
    /// Whether the peer may lack the credits for a control frame, and is owed some. A frame that returns them is owed itself: with
    /// two or more, two sides that are short do not answer each other for ever.
    [[nodiscard]] bool peer_is_short() const noexcept { return granted_ <= 1 && owed_ >= 2; }
    /// The same as `return_due` once `settle` finds all freed slots with the device.
    [[nodiscard]] bool return_due_soon() const noexcept { return freed_ + owed_ >= capacity_ / 2; }

private:
    std::uint32_t credits_ = 0;
    std::uint32_t most_credits_ = 0;  // that the peer gave at first
    std::uint32_t granted_ = 0;
    std::uint32_t capacity_ = 0;  // that this side gave at first
    std::uint32_t owed_ = 0;
    std::uint32_t freed_ = 0;  // owed when `epoch_` is over
    std::uint64_t epoch_ = 0;
};

}  // namespace rdmacoro::detail
