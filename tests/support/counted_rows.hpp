#pragma once

// Allocations of rows of the same work, beside those that the timing decides.

#include "support/counting_new.hpp"

#include <rdmacoro/coro/frame_pool.hpp>
#include <rdmacoro/protocol/message_pool.hpp>

#include <array>
#include <cstddef>

namespace rdmacoro::test {

/// From now on this thread has room for 32 more coroutines of every size at a time, without another allocation: where several ranks share a
/// thread, how many of them are in the same function at a time is for the timing to decide.
inline void hold_frames() {
    using pool = detail::frame_pool;
    std::array<void*, 32> frames;
    for (std::size_t bytes = pool::step; bytes <= pool::largest; bytes += pool::step) {
        for (void*& frame : frames) frame = pool::allocate(bytes);
        for (void* const frame : frames) pool::deallocate(frame, bytes);
    }
}

/// Rows of the same work, until two in succession have neither allocated nor made a store grow. How many messages come before their receive
/// at a time is for the timing to decide, and so is when a store or a table has room enough; but an allocation that belongs to the work is
/// made in each row. A store never gives memory back while it has less than `most` bytes.
class counted_rows {
public:
    static constexpr std::size_t most = detail::message_store::usual_idle;
    /// Rows that are run at most.
    static constexpr int longest = 40;

    explicit counted_rows(const message_pool& stores) noexcept : stores_(stores) {}

    void begin() noexcept {
        stored_ = stores_.footprint();
        from_ = allocations();
    }
    void end() noexcept {
        last_ = allocations() - from_;
        clean_ = last_ == 0 && stores_.footprint() == stored_ ? clean_ + 1 : 0;
    }
    /// Whether the last two rows allocated nothing.
    [[nodiscard]] bool settled() const noexcept { return clean_ >= 2; }
    /// Allocations of the last row.
    [[nodiscard]] std::size_t last() const noexcept { return last_; }

private:
    const message_pool& stores_;
    std::size_t stored_ = 0;
    std::size_t from_ = 0;
    std::size_t last_ = 0;
    int clean_ = 0;
};

}  // namespace rdmacoro::test
