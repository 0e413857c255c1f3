#pragma once

// Counts what the running thread takes from the heap. A test program that calls `allocations` has its operator new
// replaced by one that counts.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define RDMACORO_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RDMACORO_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef RDMACORO_COUNTS_ALLOCATIONS
#define RDMACORO_COUNTS_ALLOCATIONS 1
#endif

namespace rdmacoro::test {

/// False under AddressSanitizer, which wants operator new, and every coroutine frame, for itself.
inline constexpr bool counts_allocations = RDMACORO_COUNTS_ALLOCATIONS != 0;

/// How often this thread has called operator new. Compare two of them.
std::size_t allocations() noexcept;

}  // namespace rdmacoro::test
