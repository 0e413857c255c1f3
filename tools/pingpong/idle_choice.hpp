// An idle strategy that is chosen at run time.
#pragma once

#include <rdmacoro/coro/idle.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace pingpong {

/// Travels as a number.
enum class idle_kind : std::uint64_t { spin, yield, adaptive };
inline constexpr std::array<std::string_view, 3> idle_names{"spin", "yield", "adaptive"};

/// Acts as `*kind`, read at each turn: the listening side gets it from its client. `kind` must outlive the
/// scheduler.
class chosen_idle {
public:
    explicit chosen_idle(const idle_kind* kind) noexcept : kind_(kind) {}

    rdmacoro::idle::action next(rdmacoro::clock& time) noexcept {
        switch (*kind_) {
            case idle_kind::spin: return rdmacoro::idle::action::spin;
            case idle_kind::yield: return rdmacoro::idle::action::yield;
            case idle_kind::adaptive: break;
        }
        return adaptive_.next(time);
    }
    void progress() noexcept { adaptive_.progress(); }
    void timer_expired() noexcept { adaptive_.timer_expired(); }
    void wait_begins(rdmacoro::time_point sleeps_until) noexcept { adaptive_.wait_begins(sleeps_until); }
    /// Without a choice on the command line it is adaptive until the plan of the client arrives; it changes at no other time.
    [[nodiscard]] bool may_park() const noexcept { return *kind_ == idle_kind::adaptive; }

private:
    const idle_kind* kind_;
    rdmacoro::idle::adaptive adaptive_;
};
static_assert(rdmacoro::idle::strategy<chosen_idle>);

}  // namespace pingpong
