// posted_stop: a stop request in place of a timer for which there is no memory.
#pragma once

#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/scheduler.hpp>

namespace rdmacoro::detail {

/// Asks a source to stop in the scheduler's next turn: an operation that is about to be suspended does not look at its token any more.
class posted_stop : private posted_node {
public:
    posted_stop() noexcept = default;
    posted_stop(const posted_stop&) = delete;
    posted_stop& operator=(const posted_stop&) = delete;
    ~posted_stop() { withdraw(); }

    void post(scheduler& on, local_stop_source& to) noexcept {
        on_ = &on;
        to_ = &to;
        call = [](posted_node& node) noexcept {
            posted_stop& self = static_cast<posted_stop&>(node);
            self.on_ = nullptr;
            self.to_->request_stop();
        };
        on.post(*this);
    }
    void withdraw() noexcept {
        if (on_ != nullptr) static_cast<void>(on_->withdraw(*this));
        on_ = nullptr;
    }

private:
    scheduler* on_ = nullptr;  // while it is posted
    local_stop_source* to_ = nullptr;
};

}  // namespace rdmacoro::detail
