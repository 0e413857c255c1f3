// The heap of timers.
#pragma once

#include <rdmacoro/coro/timer.hpp>

#include <new>

namespace rdmacoro::detail {

RDMACORO_DECL time_point deadline_after(time_point now, duration after) noexcept {
    if (after < duration::zero()) return now;
    return after > time_point::max() - now ? time_point::max() : now + after;
}

RDMACORO_DECL timer_heap::timer_heap() {
    if (!heap_.try_reserve(first_room)) throw std::bad_alloc();
}

RDMACORO_DECL void timer_heap::insert(timer_node& timer) noexcept {
    if (!heap_.try_reserve(heap_.size() + 1)) [[unlikely]]
        return insert_without_memory(timer);
    push(timer);
    while (behind_ != nullptr && heap_.size() != heap_.capacity()) [[unlikely]]
        take_from_behind();
}
RDMACORO_DECL void timer_heap::push(timer_node& timer) noexcept {
    static_cast<void>(heap_.try_push_back(&timer));
    sift_up(heap_.size() - 1);
}

RDMACORO_DECL void timer_heap::remove(timer_node& timer) noexcept {
    if (!timer.queued()) return;
    if (timer.position == is_behind) [[unlikely]]
        return remove_from_behind(timer);
    const std::size_t hole = timer.position;
    timer.position = timer_node::not_queued;
    timer_node* last = heap_.back();
    heap_.pop_back();
    if (last != &timer) {
        place(hole, last);
        sift_up(hole);
        sift_down(last->position);
    }
    if (behind_ != nullptr) [[unlikely]]
        take_from_behind();
}

RDMACORO_COLD void timer_heap::insert_without_memory(timer_node& timer) noexcept {
    timer_node* later = &timer;
    if (timer.deadline < earliest()) {  // changes places with a leaf
        later = heap_.back();
        heap_.pop_back();
        push(timer);
    }
    later->position = is_behind;
    later->next_behind = behind_;
    behind_ = later;
}
RDMACORO_COLD void timer_heap::take_from_behind() noexcept {
    timer_node* first = behind_;
    for (timer_node* at = behind_->next_behind; at != nullptr; at = at->next_behind) {
        if (at->deadline < first->deadline) first = at;
    }
    remove_from_behind(*first);
    push(*first);
}
RDMACORO_COLD void timer_heap::remove_from_behind(timer_node& timer) noexcept {
    timer_node** link = &behind_;
    while (*link != &timer) link = &(*link)->next_behind;
    *link = timer.next_behind;
    timer.position = timer_node::not_queued;
}

RDMACORO_DECL std::size_t timer_heap::expire(time_point now, std::size_t most) noexcept {
    std::size_t count = 0;
    while (count != most && !heap_.empty() && heap_.front()->deadline <= now) {
        timer_node& timer = *heap_.front();
        remove(timer);
        timer.expired(timer);
        ++count;
    }
    return count;
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
