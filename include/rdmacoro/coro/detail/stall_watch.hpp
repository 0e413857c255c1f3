// stall_watch: looks now and then whether anything of a scheduler's pending operations moves.
#pragma once

#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timer.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro {
struct pending_operation;
}

namespace rdmacoro::detail {

/// A service of a scheduler; see `scheduler::watch_stalls`. Compares the pending operations with those of its last look: there is no
/// stall when one has ended, begun or moved bytes. Operations that wait for their time count neither way.
class stall_watch {
public:
    explicit stall_watch(scheduler& owner) noexcept;
    stall_watch(const stall_watch&) = delete;
    stall_watch& operator=(const stall_watch&) = delete;
    ~stall_watch();

    /// From now on. Zero: not any more.
    void set(duration limit);
    /// How many stalls it has reported.
    [[nodiscard]] std::uint64_t reports() const noexcept { return reports_; }
    /// Sets `waited` of operations that it has seen before and that have no time of their own.
    void complete(description& found, time_point now) const;

private:
    struct seen {
        const void* id;
        std::uint64_t serial;
        std::size_t moved;
        time_point first;
    };
    struct hook : timer_node {
        stall_watch* self = nullptr;
    };

    /// As the C library compares: neither its sort nor its search is a template to compile.
    static int by_id(const void* a, const void* b) noexcept;
    void look() noexcept;
    void begin_again() noexcept;
    /// Notes what is pending. True: the same as last time, and something.
    [[nodiscard]] bool same_as_before(const description& now_pending, time_point now);
    [[nodiscard]] const seen* find(const pending_operation& one) const noexcept;

    static constexpr int looks = 4;  // in the time after which it reports

    scheduler& owner_;
    hook timer_;
    duration limit_{};
    time_point unchanged_since_{};
    bool reported_ = false;  // the stall that lasts
    std::uint64_t reports_ = 0;
    plain_vector<seen> seen_;  // sorted by `id`
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/stall_watch.ipp>
#endif
