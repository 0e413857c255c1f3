// withdrawal_list: the messages that a sender has asked its receiver to give back.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// Messages to be withdrawn, by the note of each. An entry waits until its message is found and discarded, or its request is void; the entry of
/// a message that was found stays until the sender was told.
template <std::size_t Most>
class withdrawal_list {
public:
    /// A message is awaited. False: there are too many.
    [[nodiscard]] bool add(std::uint32_t note) noexcept {
        if (count_ == Most) return false;
        all_[count_++] = {note, false};
        ++awaited_;
        return true;
    }
    /// Messages that are awaited.
    [[nodiscard]] std::size_t awaited() const noexcept { return awaited_; }
    /// The message was found. False: it is not awaited.
    bool found(std::uint32_t note) noexcept {
        withdrawal* const w = awaited(note);
        if (w == nullptr) return false;
        w->found = true;
        --awaited_;
        return true;
    }
    /// The request is void, where the message is awaited.
    void forget(std::uint32_t note) noexcept {
        withdrawal* const w = awaited(note);
        if (w == nullptr) return;
        *w = all_[--count_];
        --awaited_;
    }
    /// Calls `send(note)` for each message that was found; those with the answer true leave the list.
    template <class Send>
    void send_found(Send send) noexcept {
        for (std::size_t i = count_; i-- > 0;) {
            if (all_[i].found && send(all_[i].note)) all_[i] = all_[--count_];
        }
    }
    void clear() noexcept { count_ = awaited_ = 0; }

private:
    struct withdrawal {
        std::uint32_t note;
        bool found;
    };

    [[nodiscard]] withdrawal* awaited(std::uint32_t note) noexcept {
        const auto end = all_.begin() + count_;
        const auto at = std::find_if(
            all_.begin(), end, [&](const withdrawal& w) noexcept { return w.note == note && !w.found; });
        return at == end ? nullptr : &*at;
    }

    std::array<withdrawal, Most> all_;
    std::size_t count_ = 0;
    std::size_t awaited_ = 0;
};

}  // namespace rdmacoro::detail
