// Whether announcing buffers pays: a sliding window over the outcomes of the last announcements, with hysteresis.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace rdmacoro::detail {

/// Turned off when fewer than half of the last 16 announcements were used. While off, receives that could have been announced
/// are watched: a message that asks for a rendezvous and finds its receive posted might have used it. When 13 of the last 16
/// (80 %) did, announcing is tried again; each time that turns out wrong the next try waits twice as long.
///
/// Source: the usage factor of Rashti and Afsahi (2009); their paper leaves window, sample and hysteresis open.
class speculation_window {
public:
    [[nodiscard]] bool on() const noexcept { return on_; }

    /// Counts the outcome of an announcement. True: announcing stops.
    bool announced(bool used) noexcept {
        if (!on_) return false;  // it was out when announcing stopped
        note(used);
        if (seen_ < window || std::popcount(recent_) * 2 >= static_cast<int>(window)) {
            if (seen_ >= 2 * window) patience_ = window;  // it pays again
            return false;
        }
        on_ = false;
        begin();
        return true;
    }

    /// Counts the outcome of a receive that could have been announced. True: announcing begins again.
    bool watched(bool could_have_used) noexcept {
        if (on_) return false;
        note(could_have_used);
        if (seen_ < patience_ || std::popcount(recent_) * 10 < 8 * static_cast<int>(window)) return false;
        on_ = true;
        patience_ = std::min(patience_ * 2, most_patience);
        begin();
        return true;
    }

private:
    static constexpr std::uint32_t window = 16;
    static constexpr std::uint32_t most_patience = 64 * window;

    void note(bool good) noexcept {
        recent_ = static_cast<std::uint16_t>((static_cast<std::uint32_t>(recent_) << 1) | (good ? 1u : 0u));
        ++seen_;
    }
    void begin() noexcept {
        recent_ = 0;
        seen_ = 0;
    }

    std::uint16_t recent_ = 0;
    std::uint32_t seen_ = 0;  // since it was turned on or off
    std::uint32_t patience_ = window;
    bool on_ = true;
};

}  // namespace rdmacoro::detail
