// stop_bridge: from std::stop_token, which any thread may stop, to the local_stop_source of one scheduler.
#pragma once

#include <rdmacoro/coro/detail/maybe.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <stop_token>

namespace rdmacoro::detail {

/// While connected, asks a `local_stop_source` to stop once any thread stops a `std::stop_token`: by a node posted to the
/// scheduler, so never from within `connect`. Allocates nothing.
class stop_bridge {
public:
    stop_bridge() noexcept = default;
    stop_bridge(const stop_bridge&) = delete;
    stop_bridge& operator=(const stop_bridge&) = delete;
    ~stop_bridge() { disconnect(); }

    void connect(scheduler& owner, const std::stop_token& token, local_stop_source& target);

    /// No other thread accesses this object afterwards. The token may be stopped at the same time.
    void disconnect() noexcept;

private:
    struct hook : posted_node {
        stop_bridge* self = nullptr;
    };
    struct post_it {
        stop_bridge* self;
        void operator()() const noexcept;
    };

    scheduler* owner_ = nullptr;
    local_stop_source* target_ = nullptr;
    hook node_;
    // Written before the post; read after the call of the node, or after the callback has been destroyed.
    bool posted_ = false;
    maybe<std::stop_callback<post_it>> callback_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/stop_bridge.ipp>
#endif
