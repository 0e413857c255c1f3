#pragma once

// Counts what the running thread takes from the heap. A test program that calls `allocations` has its operator new
// replaced by one that counts.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RDMACORO_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RDMACORO_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef RDMACORO_COUNTS_ALLOCATIONS
#define RDMACORO_COUNTS_ALLOCATIONS 1
#endif

namespace rdmacoro::test {

/// False under AddressSanitizer and ThreadSanitizer, which want operator new for themselves.
inline constexpr bool counts_allocations = RDMACORO_COUNTS_ALLOCATIONS != 0;

/// How often this thread has called operator new. Compare two of them.
std::size_t allocations() noexcept;

/// What the thread takes while this lives is not counted: for test doubles that stand for what takes nothing.
class allocations_apart {
public:
    allocations_apart() noexcept;
    ~allocations_apart();
    allocations_apart(const allocations_apart&) = delete;
    allocations_apart& operator=(const allocations_apart&) = delete;

private:
    std::size_t before_;
};

}  // namespace rdmacoro::test
