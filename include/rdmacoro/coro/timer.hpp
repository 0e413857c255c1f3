// Timers of one scheduler: an addressable binary heap of nodes that live in the frames that wait.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/plain_vector.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// A deadline and the function to call then. The owner must not move it while it is queued.
struct timer_node {
    using function = void (*)(timer_node&) noexcept;
    static constexpr std::uint32_t not_queued = 0xffffffff;

    time_point deadline{};
    function expired = nullptr;
    timer_node* next_behind = nullptr;  ///< among those for which the heap has no room
    std::uint32_t position = not_queued;
    bool of_sleep = false;  ///< a coroutine sleeps until then; not a limit, nor a pause of the toolkit's own

    timer_node() noexcept = default;
    timer_node(const timer_node&) = delete;
    timer_node& operator=(const timer_node&) = delete;

    [[nodiscard]] bool queued() const noexcept { return position != not_queued; }
};

/// `now` plus `after`, or the end of time where that is later than `time_point` can hold; `now` where `after` is negative.
[[nodiscard]] RDMACORO_DECL time_point deadline_after(time_point now, duration after) noexcept;

/// Queued timers, earliest first. Insertion and removal take logarithmic time; a deadline later than all others, the
/// common one for timeouts, is inserted in constant time. Insertion never fails: when memory for the heap is short, later timers wait in a list
/// behind it, and each removal takes time in their number.
class timer_heap {
public:
    /// Throws `std::bad_alloc`.
    timer_heap();
    timer_heap(const timer_heap&) = delete;
    timer_heap& operator=(const timer_heap&) = delete;

    [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
    [[nodiscard]] time_point earliest() const noexcept { return heap_.front()->deadline; }
    /// The one that is due first. Precondition: not empty.
    [[nodiscard]] const timer_node& first() const noexcept { return *heap_.front(); }

    void insert(timer_node& timer) noexcept;
    void remove(timer_node& timer) noexcept;

    /// Calls `visit` with each queued timer, in any order.
    template <class Visit>
    void each(Visit visit) {
        for (std::size_t at = 0; at < heap_.size(); ++at) visit(*heap_[at]);
        for (timer_node* at = behind_; at != nullptr; at = at->next_behind) visit(*at);
    }

    /// Calls the timers that have expired by `now`, `most` of them at most; how many there were.
    std::size_t expire(time_point now, std::size_t most = ~std::size_t{0}) noexcept;

private:
    static constexpr std::uint32_t is_behind = 0xfffffffe;
    static constexpr std::size_t first_room = 16;

    void push(timer_node& timer) noexcept;
    void insert_without_memory(timer_node& timer) noexcept;
    /// Takes the earliest of those behind into the heap, which has room.
    void take_from_behind() noexcept;
    void remove_from_behind(timer_node& timer) noexcept;
    void place(std::size_t at, timer_node* timer) noexcept;
    void sift_up(std::size_t at) noexcept;
    void sift_down(std::size_t at) noexcept;

    plain_vector<timer_node*> heap_;
    // Not empty only while the heap is full; none is earlier than the heap's first.
    timer_node* behind_ = nullptr;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/timer.ipp>
#endif
