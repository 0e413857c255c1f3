#pragma once

// Whether the tests run under AddressSanitizer or ThreadSanitizer, where a step costs several times as much. Sweeps of sizes, seeds and
// moments are shorter there: what a sanitizer looks for is in the code that each step runs, and all steps run without one.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RDMACORO_UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RDMACORO_UNDER_SANITIZER 1
#endif
#endif
#ifndef RDMACORO_UNDER_SANITIZER
#define RDMACORO_UNDER_SANITIZER 0
#endif

namespace rdmacoro::test {

inline constexpr bool under_sanitizer = RDMACORO_UNDER_SANITIZER != 0;

}  // namespace rdmacoro::test
