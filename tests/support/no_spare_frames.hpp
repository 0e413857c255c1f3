#pragma once

// For tests in which a coroutine finds no memory: its frame does not come from the pool.

#include <rdmacoro/coro/frame_pool.hpp>

#include "support/counting_new.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// While this lives the thread has no frames that were used before: each takes memory.
class no_spare_frames {
public:
    no_spare_frames() {
        using detail::frame_pool;
        for (std::size_t bytes = frame_pool::step; bytes <= frame_pool::largest; bytes += frame_pool::step) {
            for (bool spare = true; spare;) {
                taken_.reserve(taken_.size() + 1);
                const std::size_t before = allocations();
                taken_.emplace_back(frame_pool::allocate(bytes), bytes);
                spare = allocations() == before;
            }
        }
    }
    no_spare_frames(const no_spare_frames&) = delete;
    no_spare_frames& operator=(const no_spare_frames&) = delete;
    ~no_spare_frames() {
        for (const auto& [frame, bytes] : taken_) detail::frame_pool::deallocate(frame, bytes);
    }

private:
    std::vector<std::pair<void*, std::size_t>> taken_;
};

}  // namespace rdmacoro::test
