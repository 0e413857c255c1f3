// The queue of a simulated network's events.
#pragma once

#include <rdmacoro/transport/sim/event.hpp>

namespace rdmacoro::detail::sim {

RDMACORO_DECL const char* name_of(event_kind kind) noexcept {
    switch (kind) {
        case event_kind::deliver: return "deliver";
        case event_kind::room: return "room";
        case event_kind::transmitted: return "transmitted";
        case event_kind::get: return "get";
        case event_kind::put: return "put";
        case event_kind::step: return "step";
        case event_kind::custom: return "custom";
    }
    return "?";
}

RDMACORO_DECL void event_queue::insert(event& e) {
    e.order = ++inserted_;
    heap_.push_back(&e);
    sift_up(heap_.size() - 1);
}

RDMACORO_DECL void event_queue::remove(event& e) noexcept {
    const std::size_t hole = e.position;
    if (hole == event::not_queued) return;
    e.position = event::not_queued;
    event* last = heap_.back();
    heap_.pop_back();
    if (last == &e) return;
    place(hole, last);
    sift_up(hole);
    sift_down(last->position);
}

RDMACORO_DECL void event_queue::sift_up(std::size_t at) noexcept {
    event* moving = heap_[at];
    while (at > 0) {
        const std::size_t parent = (at - 1) / 2;
        if (!before(*moving, *heap_[parent])) break;
        place(at, heap_[parent]);
        at = parent;
    }
    place(at, moving);
}

RDMACORO_DECL void event_queue::sift_down(std::size_t at) noexcept {
    event* moving = heap_[at];
    for (;;) {
        std::size_t child = 2 * at + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && before(*heap_[child + 1], *heap_[child])) ++child;
        if (!before(*heap_[child], *moving)) break;
        place(at, heap_[child]);
        at = child;
    }
    place(at, moving);
}

}  // namespace rdmacoro::detail::sim
