// From std::stop_token, which any thread may stop, to the local_stop_source of one scheduler.
#pragma once

#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <optional>
#include <stop_token>

namespace rdmacoro::detail {

/// While connected, asks a `local_stop_source` to stop once a `std::stop_token` is stopped: by a node posted to the
/// scheduler, whichever thread asks, so never from within `connect`. Allocates nothing.
class stop_bridge {
public:
    stop_bridge() noexcept = default;
    stop_bridge(const stop_bridge&) = delete;
    stop_bridge& operator=(const stop_bridge&) = delete;
    ~stop_bridge() { disconnect(); }

    void connect(scheduler& owner, const std::stop_token& token, local_stop_source& target) {
        if (!token.stop_possible()) return;
        owner_ = &owner;
        target_ = &target;
        node_.self = this;
        node_.call = [](posted_node& node) noexcept {
            stop_bridge& self = *static_cast<hook&>(node).self;
            self.posted_ = false;
            self.target_->request_stop();
        };
        callback_.emplace(token, post_it{this});
    }

    /// From here on no other thread knows of this object. The token may be stopped at the same time.
    void disconnect() noexcept {
        if (!callback_) return;
        callback_
            .reset();  // waits until a callback that another thread is in has returned: posted_ is settled after it
        if (std::exchange(posted_, false)) owner_->withdraw(node_);
    }

private:
    struct hook : posted_node {
        stop_bridge* self = nullptr;
    };
    struct post_it {
        stop_bridge* self;
        void operator()() const noexcept {
            self->posted_ = true;
            self->owner_->post(self->node_);
        }
    };

    scheduler* owner_ = nullptr;
    local_stop_source* target_ = nullptr;
    hook node_;
    bool posted_ =
        false;  // written before the post, read after the call of the node or after the callback is gone
    std::optional<std::stop_callback<post_it>> callback_;
};

}  // namespace rdmacoro::detail
