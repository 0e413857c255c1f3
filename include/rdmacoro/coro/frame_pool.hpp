// Recycles coroutine frames: after warm-up, calling a coroutine allocates nothing.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstddef>
#include <new>

namespace rdmacoro::detail {

#if defined(__SANITIZE_ADDRESS__)
// Each frame is an allocation of its own, so that AddressSanitizer reports any use of a freed one.
inline constexpr bool pool_frames = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool pool_frames = false;
#else
inline constexpr bool pool_frames = true;
#endif
#else
inline constexpr bool pool_frames = true;
#endif

/// A thread's free lists of frames, by size in steps of 64 bytes. Frames above `largest` come from the heap. A frame that
/// is freed by another thread than the one that allocated it joins that thread's lists, which keep as many as the thread itself has taken from
/// the heap, and a few more.
class frame_pool {
public:
    static constexpr std::size_t step = 64;
    static constexpr std::size_t largest = 4096;

    [[nodiscard]] static void* allocate(std::size_t bytes) {
        const std::size_t list = (bytes + step - 1) / step;
        if (!pool_frames || list >= lists) return ::operator new(bytes);
        free_frame*& head = free_[list];
        if (head == nullptr) return refill(list);
        free_frame* frame = head;
        head = frame->next;
        return frame;
    }

    static void deallocate(void* memory, std::size_t bytes) noexcept {
        const std::size_t list = (bytes + step - 1) / step;
        if (!pool_frames || list >= lists) {
            ::operator delete(memory);
            return;
        }
        if (!known_thread_) [[unlikely]]
            register_thread();
        free_frame*& head = free_[list];
        const std::size_t depth = head != nullptr ? head->depth + 1 : 1;
        if (depth > made_[list] + most_of_others) [[unlikely]] {
            ::operator delete(memory);
            return;
        }
        head = ::new (memory) free_frame{head, depth};
    }

private:
    struct free_frame {
        free_frame* next;
        std::size_t depth;  // of the list, from this one on
    };
    static constexpr std::size_t most_of_others = 64;
    static constexpr std::size_t lists = largest / step + 1;

    struct cleaner;

    // Only slow paths touch the object with a destructor, so that the fast path needs no thread-local guard.
    static void* refill(std::size_t list);
    static void register_thread() noexcept;

    static inline constinit thread_local bool known_thread_ = false;
    static inline constinit thread_local free_frame* free_[lists] = {};
    static inline constinit thread_local std::size_t made_[lists] = {};  // from the heap, by this thread
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/frame_pool.ipp>
#endif
