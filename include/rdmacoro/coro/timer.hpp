// Timers of one scheduler: an addressable binary heap of nodes that live in the frames that wait.
#pragma once

#include <rdmacoro/coro/clock.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// A deadline and what to call then. The owner keeps it in place while it is queued.
struct timer_node {
    using function = void (*)(timer_node&) noexcept;
    static constexpr std::size_t not_queued = static_cast<std::size_t>(-1);

    time_point deadline{};
    function expired = nullptr;
    std::size_t position = not_queued;

    timer_node() noexcept = default;
    timer_node(const timer_node&) = delete;
    timer_node& operator=(const timer_node&) = delete;

    [[nodiscard]] bool queued() const noexcept { return position != not_queued; }
};

/// `now` plus `after`, or the end of time where that is later than can be told.
[[nodiscard]] inline time_point deadline_after(time_point now, duration after) noexcept {
    return after > time_point::max() - now ? time_point::max() : now + after;
}

/// Queued timers, earliest first. Insertion and removal take logarithmic time; a deadline later than all others, the
/// common one for timeouts, is inserted in constant time.
class timer_heap {
public:
    [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
    [[nodiscard]] time_point earliest() const noexcept { return heap_.front()->deadline; }

    void insert(timer_node& timer) {
        heap_.push_back(&timer);
        sift_up(heap_.size() - 1);
    }

    void remove(timer_node& timer) noexcept {
        const std::size_t hole = timer.position;
        if (hole == timer_node::not_queued) return;
        timer.position = timer_node::not_queued;
        timer_node* last = heap_.back();
        heap_.pop_back();
        if (last == &timer) return;
        place(hole, last);
        sift_up(hole);
        sift_down(last->position);
    }

    /// Calls what has expired by `now`; true when anything had.
    bool expire(time_point now) noexcept {
        bool any = false;
        while (!heap_.empty() && heap_.front()->deadline <= now) {
            timer_node& timer = *heap_.front();
            remove(timer);
            timer.expired(timer);
            any = true;
        }
        return any;
    }

private:
    void place(std::size_t at, timer_node* timer) noexcept {
        heap_[at] = timer;
        timer->position = at;
    }

    void sift_up(std::size_t at) noexcept {
        timer_node* moving = heap_[at];
        while (at > 0) {
            const std::size_t parent = (at - 1) / 2;
            if (heap_[parent]->deadline <= moving->deadline) break;
            place(at, heap_[parent]);
            at = parent;
        }
        place(at, moving);
    }

    void sift_down(std::size_t at) noexcept {
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

    std::vector<timer_node*> heap_;
};

}  // namespace rdmacoro::detail
