// How a thread's free lists of frames are filled and, at the thread's end, freed.
#pragma once

#include <rdmacoro/coro/frame_pool.hpp>

namespace rdmacoro::detail {

struct frame_pool::cleaner {
    ~cleaner() {
        for (free_frame*& head : free_) {
            while (free_frame* frame = head) {
                head = frame->next;
                ::operator delete(frame);
            }
        }
    }
};

[[gnu::noinline]] RDMACORO_DECL void* frame_pool::refill(std::size_t list) {
    if (!known_thread_) register_thread();
    void* const made = ::operator new(list * step);
    ++made_[list];
    return made;
}

[[gnu::noinline]] RDMACORO_COLD void frame_pool::register_thread() noexcept {
    static thread_local cleaner at_exit;
    static_cast<void>(&at_exit);
    known_thread_ = true;
}

}  // namespace rdmacoro::detail
