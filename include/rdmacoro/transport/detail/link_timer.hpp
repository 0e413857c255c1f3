// link_timer: the one timer of a link, set anew for each thing that it waits for.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/timer.hpp>

namespace rdmacoro {
class scheduler;
}

namespace rdmacoro::detail {

/// Calls `call(link)` once when the time is over. Not moved while it is set; canceled by its destructor.
class link_timer : private timer_node {
public:
    using function = void (*)(void* link) noexcept;

    link_timer(scheduler& owner, void* link, function call) noexcept;
    ~link_timer() { cancel(); }

    /// Replaces the time set before.
    void set(duration after) noexcept;
    void cancel() noexcept;
    [[nodiscard]] bool queued() const noexcept { return timer_node::queued(); }

private:
    scheduler& owner_;
    void* link_;
    function call_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/link_timer.ipp>
#endif
