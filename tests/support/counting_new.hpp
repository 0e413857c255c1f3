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

}  // namespace rdmacoro::test
