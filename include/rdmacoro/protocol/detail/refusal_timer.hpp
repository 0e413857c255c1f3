// How long a rendezvous waits for the reason when the peer's memory is refused.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timer.hpp>

#include <algorithm>
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

    /// Something was refused now. Answers until when the peer may say why.
    time_point start(scheduler& on) noexcept {
        const time_point until = deadline_after(on.now(), grace);
        start(on, until);
        return until;
    }
    /// Nothing happens where it runs already: `refusal_expired` starts it anew for those that have time left.
    void start(scheduler& on, time_point until) noexcept {
        if (queued()) return;
        on_ = &on;
        deadline = until;
        try {
            on.add_timer(*this);
        } catch (const std::bad_alloc&) {
            owner_.refusal_expired();
        }
    }
    void stop() noexcept {
        if (queued()) on_->remove_timer(*this);
    }
    /// For `refusal_expired`: of the slots that are `refused(slot)` one has been so for too long.
    template <class Slots, class Refused>
    [[nodiscard]] bool overdue(Slots& slots, Refused refused) noexcept {
        time_point first = time_point::max();
        for (auto& s : slots) {
            if (refused(s)) first = std::min(first, s.refused_until);
        }
        if (first == time_point::max()) return false;
        if (first <= on_->now()) return true;
        start(*on_, first);
        return false;
    }

private:
    Owner& owner_;
    scheduler* on_ = nullptr;
};

}  // namespace rdmacoro::detail
