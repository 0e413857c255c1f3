// How much the links of a domain copy between two looks at everything else: of each other's memory, of long messages, and
// of gets and puts that are served.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail::shm {

/// One account for all links of a domain: many transfers and long messages at a time hold up other messages, timers and coroutines no longer than one
/// of them does.
class copy_allowance {
public:
    static constexpr std::size_t in_a_poll = 128 * 1024;  ///< bytes: 16 us at 8 GB/s
    static constexpr std::size_t least_piece = 16 * 1024;
    /// Bytes that are copied whatever the account says: that costs less than to come back for it. Of gets and puts: `most_short` of them
    /// between two polls, as a transfer to or from many small pieces is a get or put for each.
    static constexpr std::size_t always = 4096;
    static constexpr unsigned most_short = 8;
    /// What a get or put counts at least: it costs more than its bytes. 64 of them use the account up.
    static constexpr std::size_t least_charge = 2048;

    /// The most that one transfer may copy now; 0: it waits for the next poll.
    [[nodiscard]] std::size_t piece() const noexcept { return left_ == 0 ? 0 : std::max(left_, least_piece); }
    void copied(std::size_t bytes) noexcept { left_ -= std::min(left_, bytes); }
    /// The same for a get or put with so many bytes left.
    [[nodiscard]] std::size_t piece_of(std::uint64_t left) const noexcept {
        if (left_ != 0) [[likely]]
            return std::max(left_, least_piece);
        return left <= always && short_left_ != 0 ? always : 0;
    }
    void copied_piece(std::size_t bytes) noexcept {
        if (left_ != 0) [[likely]] {
            copied(std::max(bytes, least_charge));
        } else if (short_left_ != 0) {
            --short_left_;
        }
    }
    [[nodiscard]] bool used_up() const noexcept { return left_ == 0; }
    /// Everything else had its turn.
    void renew() noexcept {
        left_ = in_a_poll;
        short_left_ = most_short;
    }

private:
    std::size_t left_ = in_a_poll;
    unsigned short_left_ = most_short;  // once nothing else is left
};

}  // namespace rdmacoro::detail::shm
