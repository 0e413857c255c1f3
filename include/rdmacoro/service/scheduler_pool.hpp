// scheduler_pool: schedulers, one a thread, for the handlers of methods that take long.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/service/detail/task_port.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>

namespace rdmacoro {

namespace detail {
class scheduler_pool_state;
template <class M, class F>
class pool_handler;
}  // namespace detail

/// Threads, each with a scheduler. Given to `service::on`, the handlers of that method run on them: each on the one that has the fewest.
///
/// Destroying it asks the handlers that run to stop, waits until they have ended, and joins the threads; their calls end with
/// `call_errc::stopped`, as do later ones. Services that use it may outlive it. Any thread but its own may make and destroy it.
class scheduler_pool {
public:
    /// Throws `errc::invalid_argument` for 0, and `errc::no_resources` where a thread cannot be made.
    explicit scheduler_pool(std::size_t threads);
    scheduler_pool(const scheduler_pool&) = delete;
    scheduler_pool& operator=(const scheduler_pool&) = delete;
    ~scheduler_pool();

    /// Its threads.
    [[nodiscard]] std::size_t size() const noexcept;
    /// Handlers that run now. Any thread may ask.
    [[nodiscard]] std::size_t running() const noexcept;

private:
    template <class M, class F>
    friend class detail::pool_handler;

    std::shared_ptr<detail::scheduler_pool_state> state_;
};

/// The call of a handler on a `scheduler_pool`: first argument of every such handler. Lives until the handler has ended, on its
/// thread.
class pool_context {
public:
    /// Made for the handler. `due`: when its time is over, by the clock of its scheduler.
    pool_context(std::size_t bytes, std::optional<time_point> due) noexcept : bytes_(bytes), due_(due) {}
    pool_context(const pool_context&) = delete;
    pool_context& operator=(const pool_context&) = delete;
    ~pool_context() = default;

    /// The rest of the call's time, at least 0; nothing where the caller set no limit, or one of more than 71 minutes.
    [[nodiscard]] std::optional<duration> remaining() const noexcept;
    /// Of the request, its arguments' encoding included.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// Whether the caller has canceled it, its time is over, or the pool ends. A handler that computes for long without awaiting anything hears of
    /// that only when it awaits `yield` now and then.
    [[nodiscard]] bool canceled() const noexcept { return stop_.stop_requested(); }

    /// Internal: of the handler's coroutine.
    void set_stop(local_stop_token stop) noexcept { stop_ = stop; }

private:
    std::size_t bytes_;
    std::optional<time_point> due_;
    local_stop_token stop_;
};

namespace detail {
/// Where a handler is to run: on the thread that has the fewest, those included that have not begun there. It is one of them while this lives,
/// which its pool's state outlives. Any thread.
class pool_place {
public:
    RDMACORO_DECL explicit pool_place(scheduler_pool_state& among) noexcept;
    pool_place(const pool_place&) = delete;
    pool_place& operator=(const pool_place&) = delete;
    ~pool_place() { handlers_->fetch_sub(1, std::memory_order_relaxed); }

    /// May be closed.
    [[nodiscard]] task_port& port() const noexcept { return *port_; }

private:
    task_port* port_;
    std::atomic<std::size_t>* handlers_;  // of that thread
};
}  // namespace detail

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/scheduler_pool.ipp>
#endif
