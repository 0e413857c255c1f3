// Recycles coroutine frames: after warm-up, calling a coroutine allocates nothing.
#pragma once

#include <cstddef>
#include <new>

namespace rdmacoro::detail {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool pool_frames = false;  // let AddressSanitizer see every frame's own lifetime
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool pool_frames = false;
#else
inline constexpr bool pool_frames = true;
#endif
#else
inline constexpr bool pool_frames = true;
#endif

/// A thread's free lists of frames, by size in steps of 64 bytes. Frames above `largest` go to the heap. A frame may be
/// freed on another thread than the one that made it: it then joins that thread's lists.
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
        auto* frame = static_cast<free_frame*>(memory);
        frame->next = free_[list];
        free_[list] = frame;
    }

private:
    struct free_frame {
        free_frame* next;
    };
    static constexpr std::size_t lists = largest / step + 1;

    struct cleaner {
        ~cleaner() {
            for (free_frame*& head : free_) {
                while (free_frame* frame = head) {
                    head = frame->next;
                    ::operator delete(frame);
                }
            }
        }
    };

    // Only slow paths touch the object with a destructor, so that the fast path needs no thread-local guard.
    [[gnu::noinline]] static void* refill(std::size_t list) {
        if (!known_thread_) register_thread();
        const std::size_t bytes = list * step;
        return ::operator new(bytes);
    }
    [[gnu::noinline]] static void register_thread() noexcept {
        static thread_local cleaner at_exit;
        static_cast<void>(&at_exit);
        known_thread_ = true;
    }

    static inline constinit thread_local bool known_thread_ = false;
    static inline constinit thread_local free_frame* free_[lists] = {};
};

}  // namespace rdmacoro::detail
