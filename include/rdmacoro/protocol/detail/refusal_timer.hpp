// How long a rendezvous waits for the reason when the peer's memory is refused.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timer.hpp>

#include <chrono>
#include <new>
#include <system_error>

namespace rdmacoro::detail {

/// What ends a get or a put that the other side's memory refused, and not the link.
[[nodiscard]] inline bool is_refusal(std::error_code outcome) noexcept {
    return outcome == errc::bad_key || outcome == errc::out_of_bounds || outcome == errc::access_denied;
}

/// Who takes memory back says so before it does, so that the word is at most waiting in this side's network when an access
/// is refused. A peer that names memory it does not own never says it: after `grace` the link ends.
template <class Owner>
class refusal_timer : private timer_node {
public:
    static constexpr duration grace = std::chrono::seconds(1);

    /// `owner.refusal_expired()` is called then.
    explicit refusal_timer(Owner& owner) noexcept : owner_(owner) {
        expired = [](timer_node& timer) noexcept {
            static_cast<refusal_timer&>(timer).owner_.refusal_expired();
        };
    }
    ~refusal_timer() { stop(); }

    void start(scheduler& on) noexcept {
        if (queued()) return;
        on_ = &on;
        deadline = deadline_after(on.now(), grace);
        try {
            on.add_timer(*this);
        } catch (const std::bad_alloc&) {
            owner_.refusal_expired();
        }
    }
    void stop() noexcept {
        if (queued()) on_->remove_timer(*this);
    }

private:
    Owner& owner_;
    scheduler* on_ = nullptr;
};

}  // namespace rdmacoro::detail
