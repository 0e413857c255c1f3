// How much the links of a domain copy between two looks at everything else: of each other's memory, of long messages, and
// of gets and puts that are served.
#pragma once

#include <algorithm>
#include <cstddef>

namespace rdmacoro::detail::shm {

/// One account for all links of a domain: many transfers and long messages at a time hold up other messages, timers and coroutines no longer than one
/// of them does.
class copy_allowance {
public:
    static constexpr std::size_t in_a_poll = 128 * 1024;  ///< bytes: 16 us at 8 GB/s
    static constexpr std::size_t least_piece = 16 * 1024;
    /// Bytes that are copied whatever the account says: that costs less than to come back for it.
    static constexpr std::size_t always = 4096;

    /// The most that one transfer may copy now; 0: it waits for the next poll.
    [[nodiscard]] std::size_t piece() const noexcept { return left_ == 0 ? 0 : std::max(left_, least_piece); }
    void copied(std::size_t bytes) noexcept { left_ -= std::min(left_, bytes); }
    [[nodiscard]] bool used_up() const noexcept { return left_ == 0; }
    /// Everything else had its turn.
    void renew() noexcept { left_ = in_a_poll; }

private:
    std::size_t left_ = in_a_poll;
};

}  // namespace rdmacoro::detail::shm
