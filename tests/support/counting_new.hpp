#pragma once

// Counts what the running thread takes from the heap. A test program that calls `allocations` has its operator new
// replaced by one that counts.

#include "support/sanitizer.hpp"

#include <cstddef>

namespace rdmacoro::test {

/// False under AddressSanitizer and ThreadSanitizer, which want operator new for themselves.
inline constexpr bool counts_allocations = !under_sanitizer;

/// How often this thread has called operator new. Compare two of them.
std::size_t allocations() noexcept;

/// Memory that the thread takes while this lives is not counted: for test doubles of parts that take none.
class allocations_apart {
public:
    allocations_apart() noexcept;
    ~allocations_apart();
    allocations_apart(const allocations_apart&) = delete;
    allocations_apart& operator=(const allocations_apart&) = delete;

private:
    std::size_t before_;
};

/// While this lives, what the thread takes from the heap fails where its size in bytes is from `least` to `most`. Does nothing
/// where allocations are not counted.
class failing_allocations {
public:
    failing_allocations(std::size_t least, std::size_t most) noexcept;
    ~failing_allocations();
    failing_allocations(const failing_allocations&) = delete;
    failing_allocations& operator=(const failing_allocations&) = delete;
};

/// The next so many that this thread takes from the heap fail, whatever their size. Does nothing where allocations are not counted.
void fail_next_allocations(std::size_t many) noexcept;

/// One of those that this thread takes from the heap fails: 1 is the next, 0 none. Does nothing where allocations are not counted.
void fail_allocation(std::size_t number) noexcept;
/// Whether it has not come to that.
[[nodiscard]] bool allocation_is_to_fail() noexcept;

}  // namespace rdmacoro::test
