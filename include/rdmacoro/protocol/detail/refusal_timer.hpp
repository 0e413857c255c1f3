// How long a rendezvous waits for the reason when the peer's memory is refused.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timer.hpp>

#include <chrono>
#include <system_error>

namespace rdmacoro::detail {

/// Whether a get or a put ended because the other side's memory refused it, which leaves most links usable.
[[nodiscard]] RDMACORO_DECL bool is_refusal(std::error_code outcome) noexcept;

/// A side that takes memory back notifies the peer by a message first; when an access is refused, that message is at
/// most waiting in this side's network. A peer that names memory it does not own never sends one: after `grace` the
/// link ends.
class refusal_timer : private timer_node {
public:
    static constexpr duration grace = std::chrono::seconds(1);

    /// `expired(owner)` is called when the time is over.
    refusal_timer(void* owner, void (*expired)(void* owner) noexcept) noexcept;
    ~refusal_timer() { stop(); }

    /// Nothing happens where it runs already: `expired` starts it anew for the streams that have time left.
    void start(scheduler& on, time_point until) noexcept;
    void stop() noexcept;

private:
    void* owner_;
    void (*call_)(void* owner) noexcept;
    scheduler* on_ = nullptr;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/refusal_timer.ipp>
#endif
