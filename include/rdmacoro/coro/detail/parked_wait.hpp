// parked_wait: the part of an operation that its scheduler lists while it waits, as nothing else leads to it.
#pragma once

#include <rdmacoro/coro/next_actor.hpp>
#include <rdmacoro/coro/scheduler.hpp>

namespace rdmacoro {

struct pending_operation;

namespace detail {

class operation_base;
class parked_wait;

/// The constant part of a wait's description.
struct wait_facts {
    const char* what;
    const char* stage;
    next_actor next;
    /// Adds the rest; nullptr where there is none.
    void (*more)(const parked_wait& of, pending_operation& into) = nullptr;
};

/// Base of operations on objects that the scheduler does not know: events, channels, gets. Linked when the operation must wait,
/// until its frame destroys it: a list of those that may have ended. One that has not waited costs a store.
class parked_wait : public list_node<parked_wait> {
public:
    /// The operation waits from now on.
    template <class Operation>
    void park(Operation& of, const wait_facts& facts) noexcept {
        operation_ = &of;
        park_in(of.owner(), facts);
    }

    /// nullptr: a step of a coroutine, which lasts as long as the object.
    [[nodiscard]] const operation_base* operation() const noexcept { return operation_; }
    [[nodiscard]] const wait_facts& waits_for() const noexcept { return *facts_; }
    /// When it began to wait, by the scheduler's clock.
    [[nodiscard]] time_point since() const noexcept { return time_point(duration(since_)); }

protected:
    void begin_step(scheduler& on, const wait_facts& facts) noexcept {
        operation_ = nullptr;
        park_in(on, facts);
    }

    [[gnu::always_inline]] parked_wait() noexcept {
    }  // NOLINT: not `= default`; the members are set while linked
    [[gnu::always_inline]] parked_wait(parked_wait&&) noexcept : list_node() {}
    [[gnu::always_inline]] ~parked_wait() { unlink(); }

private:
    void park_in(scheduler& on, const wait_facts& facts) noexcept {
        facts_ = &facts;
        since_ = on.coarse_now().time_since_epoch().count();
        on.parked_waits().push_back(*this);
    }

    const operation_base* operation_;
    const wait_facts* facts_;
    duration::rep since_;
};

}  // namespace detail
}  // namespace rdmacoro
