// The heap of timers.
#pragma once

#include <rdmacoro/coro/timer.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL time_point deadline_after(time_point now, duration after) noexcept {
    return after > time_point::max() - now ? time_point::max() : now + after;
}

RDMACORO_DECL void timer_heap::insert(timer_node& timer) {
    heap_.push_back(&timer);
    sift_up(heap_.size() - 1);
}

RDMACORO_DECL void timer_heap::remove(timer_node& timer) noexcept {
    if (!timer.queued()) return;
    const std::size_t hole = timer.position;
    timer.position = timer_node::not_queued;
    timer_node* last = heap_.back();
    heap_.pop_back();
    if (last == &timer) return;
    place(hole, last);
    sift_up(hole);
    sift_down(last->position);
}

RDMACORO_DECL bool timer_heap::expire(time_point now) noexcept {
    bool any = false;
    while (!heap_.empty() && heap_.front()->deadline <= now) {
        timer_node& timer = *heap_.front();
        remove(timer);
        timer.expired(timer);
        any = true;
    }
    return any;
}

RDMACORO_DECL void timer_heap::place(std::size_t at, timer_node* timer) noexcept {
    heap_[at] = timer;
    timer->position = static_cast<std::uint32_t>(at);
}

RDMACORO_DECL void timer_heap::sift_up(std::size_t at) noexcept {
    timer_node* moving = heap_[at];
    while (at > 0) {
        const std::size_t parent = (at - 1) / 2;
        if (heap_[parent]->deadline <= moving->deadline) break;
        place(at, heap_[parent]);
        at = parent;
    }
    place(at, moving);
}

RDMACORO_DECL void timer_heap::sift_down(std::size_t at) noexcept {
    timer_node* moving = heap_[at];
    for (;;) {
        std::size_t child = 2 * at + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && heap_[child + 1]->deadline < heap_[child]->deadline) ++child;
        if (moving->deadline <= heap_[child]->deadline) break;
        place(at, heap_[child]);
        at = child;
    }
    place(at, moving);
}

}  // namespace rdmacoro::detail
