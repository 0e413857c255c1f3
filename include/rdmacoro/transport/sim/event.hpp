// The events of a simulated network, and their queue.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rdmacoro::detail::sim {

enum class event_kind : std::uint8_t { deliver = 1, room, transmitted, get, put, step, custom };

[[nodiscard]] RDMACORO_DECL const char* name_of(event_kind kind) noexcept;

/// The name of an event, the same in every order of independent events: kind, owner (a lane, an actor) and its number
/// there, in 4, 20 and 40 bits.
struct event_key {
    static constexpr unsigned number_bits = 40;
    static constexpr unsigned whose_bits = 20;

    [[nodiscard]] static constexpr std::uint64_t of(event_kind kind, std::uint32_t whose,
                                                    std::uint64_t number) noexcept {
        return static_cast<std::uint64_t>(kind) << (number_bits + whose_bits) |
               static_cast<std::uint64_t>(whose & ((1u << whose_bits) - 1)) << number_bits |
               (number & ((std::uint64_t{1} << number_bits) - 1));
    }
    [[nodiscard]] static constexpr event_kind kind(std::uint64_t key) noexcept {
        return static_cast<event_kind>(key >> (number_bits + whose_bits));
    }
    [[nodiscard]] static constexpr std::uint32_t whose(std::uint64_t key) noexcept {
        return static_cast<std::uint32_t>(key >> number_bits) & ((1u << whose_bits) - 1);
    }
    [[nodiscard]] static constexpr std::uint64_t number(std::uint64_t key) noexcept {
        return key & ((std::uint64_t{1} << number_bits) - 1);
    }
};

/// Something that can happen now, or at its time. A member of the object it belongs to.
struct event {
    using function = void (*)(event& self) noexcept;
    static constexpr std::size_t not_queued = static_cast<std::size_t>(-1);

    time_point at{};
    std::uint64_t order = 0;  ///< among those of one time
    std::uint64_t key = 0;
    std::uint64_t nodes =
        0;  ///< nodes with state it may touch: one bit for each node, or for several that share one
    std::size_t position = not_queued;
    function fire = nullptr;

    event() noexcept = default;
    event(const event&) = delete;
    event& operator=(const event&) = delete;

    [[nodiscard]] bool queued() const noexcept { return position != not_queued; }
};

/// Whether two events that can both happen now may happen in either order with the same result.
[[nodiscard]] constexpr bool independent(std::uint64_t nodes_of_one, std::uint64_t nodes_of_other) noexcept {
    return (nodes_of_one & nodes_of_other) == 0;
}

/// Events, the earliest first; of one time, that which was queued first. A binary heap that knows where each is.
class event_queue {
public:
    [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
    [[nodiscard]] event* front() const noexcept { return heap_.empty() ? nullptr : heap_.front(); }
    [[nodiscard]] std::span<event* const> all() const noexcept { return heap_; }

    void insert(event& e);
    void remove(event& e) noexcept;

private:
    [[nodiscard]] static bool before(const event& a, const event& b) noexcept {
        return a.at != b.at ? a.at < b.at : a.order < b.order;
    }
    void place(std::size_t at, event* e) noexcept {
        heap_[at] = e;
        e->position = at;
    }
    void sift_up(std::size_t at) noexcept;
    void sift_down(std::size_t at) noexcept;

    std::vector<event*> heap_;
    std::uint64_t inserted_ = 0;
};

/// Chooses the next event, where time does not.
class chooser {
public:
    /// Which of `enabled`, at least one, in ascending order of their keys. nullptr: the earliest.
    virtual event* choose(std::span<event* const> enabled) noexcept = 0;
    /// One of `ways`, in place of chance.
    virtual unsigned choose(unsigned ways) noexcept = 0;

protected:
    ~chooser() = default;
};

}  // namespace rdmacoro::detail::sim

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/event.ipp>
#endif
