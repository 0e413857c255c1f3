// Marks memory that a pool holds as unusable, for AddressSanitizer: a use after it was returned is reported.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define RDMACORO_WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RDMACORO_WITH_ASAN 1
#endif
#endif

#if defined(RDMACORO_WITH_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace rdmacoro::detail {

#if defined(RDMACORO_WITH_ASAN)

inline constexpr bool poisons = true;

/// From now on any access to the memory is reported, until `unpoison`. Sanitizers see steps of 8 bytes.
inline void poison(const void* memory, std::size_t bytes) noexcept {
    __asan_poison_memory_region(memory, bytes);
}
inline void unpoison(const void* memory, std::size_t bytes) noexcept {
    __asan_unpoison_memory_region(memory, bytes);
}
[[nodiscard]] inline bool is_poisoned(const void* byte) noexcept {
    return __asan_address_is_poisoned(byte) != 0;
}

#else

inline constexpr bool poisons = false;

[[gnu::always_inline]] inline void poison(const void*, std::size_t) noexcept {}
[[gnu::always_inline]] inline void unpoison(const void*, std::size_t) noexcept {}
[[nodiscard, gnu::always_inline]] inline bool is_poisoned(const void*) noexcept { return false; }

#endif

}  // namespace rdmacoro::detail

#undef RDMACORO_WITH_ASAN
