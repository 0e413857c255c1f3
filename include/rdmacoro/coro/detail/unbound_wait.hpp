// unbound_wait: a wait for an awaitable without `bind`, which cannot be canceled.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>

#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// Whether an awaitable takes the environment of what awaits it.
template <class A>
concept takes_environment = requires(A& a, const environment& env) { a.bind(env); };

/// Counted by the scheduler from `began` to `ended`, or until this is destroyed, as where `await_suspend` throws. A part of what waits.
class unbound_wait {
public:
    unbound_wait() noexcept = default;
    explicit unbound_wait(scheduler* owner) noexcept : owner_(owner) {}
    unbound_wait(const unbound_wait& other) noexcept : owner_(other.owner_) {}  // only before it has begun
    unbound_wait& operator=(const unbound_wait&) = delete;
    ~unbound_wait() { ended(); }

    void bind(const environment& env) noexcept { owner_ = env.owner; }
    void began() noexcept {
        if (owner_ == nullptr) return;
        counted_ = true;
        owner_->unbound_wait_began();
    }
    void ended() noexcept {
        if (std::exchange(counted_, false)) owner_->unbound_wait_ended();
    }

private:
    scheduler* owner_ = nullptr;
    bool counted_ = false;
};

/// In its place for an awaitable with `bind`. A type for each `A`, so that none of them takes room in another.
template <class A>
struct bound_wait {
    [[gnu::always_inline]] static void bind(const environment&) noexcept {}
    [[gnu::always_inline]] static void began() noexcept {}
    [[gnu::always_inline]] static void ended() noexcept {}
};

/// The wait for an `A`.
template <class A>
using wait_for =
    std::conditional_t<takes_environment<A>, bound_wait<std::remove_reference_t<A>>, unbound_wait>;

}  // namespace rdmacoro::detail
