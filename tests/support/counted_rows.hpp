#pragma once

// What rows of the same work take from the heap, beside what the timing decides.

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

/// How many messages come before their receive at a time is for the timing to decide, and so is when a store needs another block. A row
/// in which the store has grown does not count; all others do. The store never gives memory back while it has less than `most` bytes.
class counted_rows {
public:
    static constexpr std::size_t most = detail::message_store::usual_idle;

    explicit counted_rows(const message_pool& stores) noexcept : stores_(stores) {}

    void begin() noexcept {
        stored_ = stores_.footprint();
        from_ = allocations();
    }
    void end() noexcept {
        const std::size_t made = allocations() - from_;
        if (stores_.footprint() != stored_) return;
        ++count_;
        taken_ += made;
    }
    /// Rows that count.
    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    /// Allocations in all of them.
    [[nodiscard]] std::size_t taken() const noexcept { return taken_; }

private:
    const message_pool& stores_;
    std::size_t stored_ = 0;
    std::size_t from_ = 0;
    std::size_t count_ = 0;
    std::size_t taken_ = 0;
};

}  // namespace rdmacoro::test
