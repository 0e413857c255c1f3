// How a std::stop_token reaches a scheduler's own stop source.
#pragma once

#include <rdmacoro/coro/detail/stop_bridge.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD void stop_bridge::connect(scheduler& owner, const std::stop_token& token,
                                        local_stop_source& target) {
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

RDMACORO_COLD void stop_bridge::disconnect() noexcept {
    if (!callback_) return;
    callback_
        .reset();  // waits for a callback that runs in another thread: `posted_` does not change afterwards
    if (std::exchange(posted_, false)) owner_->withdraw(node_);
}

RDMACORO_COLD void stop_bridge::post_it::operator()() const noexcept {
    self->posted_ = true;
    self->owner_->post(self->node_);
}

}  // namespace rdmacoro::detail
