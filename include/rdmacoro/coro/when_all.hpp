// when_all(a, b, ...): several operations or tasks at a time, all of their values.
#pragma once

#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/detail/fan_out.hpp>

#include <tuple>
#include <variant>
#include <vector>

namespace rdmacoro {

namespace detail {

/// The value type in a tuple of values, also of an awaitable without a value.
template <class T>
using filled_t = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <class T>
filled_t<T> take_filled(outcome<T>& from) {
    if constexpr (std::is_void_v<T>) {
        from.take();
        return {};
    } else {
        return from.take();
    }
}

/// The part of `when_all` that does not depend on the awaitables' types.
class when_all_base {
public:
    void bind(const environment& env) noexcept { children_.bind(env); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { children_.wait(awaiting); }
    [[nodiscard]] bool ended_at_once() const noexcept { return children_.all_ended(); }

    std::coroutine_handle<> slot_ended(std::size_t, const std::exception_ptr& failure) noexcept {
        if (failure && !failure_) {
            failure_ = failure;
            children_.stop();
        }
        return children_.one_ended();
    }

protected:
    when_all_base() noexcept = default;
    when_all_base(when_all_base&&) noexcept = default;

    /// True when children may begin: the token is not stopped.
    bool prepare() {
        children_.need_owner();
        if (!children_.stopped()) return true;
        failure_ = canceled_exception();
        return false;
    }
    [[gnu::cold]] void slot_failed() noexcept {
        if (!failure_) failure_ = std::current_exception();
        children_.stop();
    }
    template <class A, class Slot>
    void begin(Slot& slot, std::remove_reference_t<A>& what, std::size_t index) {
        if (failure_) return;
        slot.operation = this;
        slot.index = index;
        try {
            children_.begin_with(run_into<A>(slot, what));
        } catch (...) {  // no memory for its coroutine: what has begun is waited for
            slot_failed();
        }
    }
    void check() {
        children_.leave();
        if (failure_) std::rethrow_exception(std::exchange(failure_, {}));
    }

    fan_out children_;
    std::exception_ptr failure_;
};

}  // namespace detail

/// The operation of `when_all`. Described at `when_all`.
template <class... As>
class when_all_operation : private detail::when_all_base {
public:
    using value_type = std::tuple<detail::filled_t<await_result_t<As>>...>;

    explicit when_all_operation(As&&... what) : what_(static_cast<As&&>(what)...) {}
    when_all_operation(when_all_operation&&) = default;  // only before it is awaited

    using detail::when_all_base::await_suspend;
    using detail::when_all_base::bind;
    using detail::when_all_base::ended_at_once;

    bool await_ready() {
        if (prepare()) begin_all(std::index_sequence_for<As...>{});
        return children_.goes_on();
    }
    value_type await_resume() {
        check();
        return take_all(std::index_sequence_for<As...>{});
    }

private:
    template <std::size_t... Is>
    void begin_all(std::index_sequence<Is...>) {
        (this->begin<As>(std::get<Is>(slots_), std::get<Is>(what_), Is), ...);
    }
    template <std::size_t... Is>
    value_type take_all(std::index_sequence<Is...>) {
        return value_type(detail::take_filled(std::get<Is>(slots_).ended_with)...);
    }

    std::tuple<As...> what_;
    std::tuple<detail::fan_out_slot<detail::when_all_base, await_result_t<As>>...> slots_;
};

/// The operation of `when_all` for a vector. Described at `when_all`.
template <class A>
class when_all_vector_operation : private detail::when_all_base {
    using inner_value = await_result_t<A>;
    static_assert(!std::is_reference_v<inner_value>,
                  "when_all: a vector can't hold references; return pointers");

public:
    using value_type =
        std::conditional_t<std::is_void_v<inner_value>, void, std::vector<detail::filled_t<inner_value>>>;

    explicit when_all_vector_operation(std::vector<A> what) : what_(std::move(what)), slots_(what_.size()) {}
    when_all_vector_operation(when_all_vector_operation&&) = default;  // only before it is awaited

    using detail::when_all_base::await_suspend;
    using detail::when_all_base::bind;
    using detail::when_all_base::ended_at_once;

    bool await_ready() {
        if (prepare()) {
            for (std::size_t at = 0; at < what_.size(); ++at) this->begin<A>(slots_[at], what_[at], at);
        }
        return children_.goes_on();
    }
    value_type await_resume() {
        check();
        if constexpr (!std::is_void_v<inner_value>) {
            value_type values;
            values.reserve(slots_.size());
            for (auto& slot : slots_) values.push_back(slot.ended_with.take());
            return values;
        }
    }

private:
    std::vector<A> what_;
    std::vector<detail::fan_out_slot<detail::when_all_base, inner_value>> slots_;
};

/// Begins all of them, in order, and waits for all.
///
/// Awaitable.
/// Completes: when all have ended, with a tuple of their values (`std::monostate` for those without a value).
/// Buffers: as for each; none is borrowed any more when it ends, also after an error. Operations on temporaries do not
/// compile: what is returned may be kept beyond the statement.
/// Concurrency: as for each. Lvalues are borrowed until then, rvalues move in.
/// Errors: the first error; the others are then canceled and waited for, and those not begun never begin.
/// Cancellation: passed on to all. With a stopped token none begins.
/// Example:
///     auto [header, body] = co_await when_all(left.recv(first), right.recv(second));
template <class... As>
    requires(sizeof...(As) > 0 && (detail::adaptable<As> && ...))
[[nodiscard]] when_all_operation<As...> when_all(As&&... what) {
    (detail::must_outlive_statement<As>(), ...);
    return when_all_operation<As...>(static_cast<As&&>(what)...);
}

/// As above for any number of one type. Allocates once for them.
///
/// Awaitable.
/// Completes: when all have ended, with a vector of their values in the same order, or nothing when they have none; at
/// once when there are none.
/// Buffers: as for each; none is borrowed any more when it ends, also after an error.
/// Concurrency: as for each.
/// Errors: the first error; the others are then canceled and waited for, and those not begun never begin.
/// Cancellation: passed on to all. With a stopped token none begins.
/// Example:
///     std::vector<task<int>> parts = split(job);
///     std::vector<int> sums = co_await when_all(std::move(parts));
template <class A>
    requires(detail::adaptable<A> && !std::is_reference_v<A>)
[[nodiscard]] when_all_vector_operation<A> when_all(std::vector<A> what) {
    detail::must_outlive_statement<A>();
    return when_all_vector_operation<A>(std::move(what));
}

}  // namespace rdmacoro
