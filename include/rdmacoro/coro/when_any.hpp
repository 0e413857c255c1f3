// when_any(a, b, ...): several operations or tasks at a time, the value of the first that ends.
#pragma once

#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/detail/fan_out.hpp>

#include <tuple>
#include <variant>
#include <vector>

namespace rdmacoro {

/// The value of `co_await when_any(a, b, ...)`: the index of the first that ended, and its value (`std::monostate` if it
/// has none).
template <class... Ts>
struct any_result {
    std::size_t index;          ///< which one was first, counted from 0
    std::variant<Ts...> value;  ///< its value, at the same index
};

/// The value of `co_await when_any(vector)`.
template <class T>
struct any_value {
    std::size_t index;  ///< which one was first, counted from 0
    T value;            ///< its value
};

namespace detail {

/// The part of `when_any` that does not depend on the awaitables' types.
class when_any_base {
public:
    void bind(const environment& env) noexcept { children_.bind(env); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { children_.wait(awaiting); }
    [[nodiscard]] bool ended_at_once() const noexcept { return children_.all_ended(); }

    std::coroutine_handle<> slot_ended(std::size_t index, const std::exception_ptr&) noexcept {
        if (first_ == none) {
            first_ = index;
            children_.stop();
        }
        return children_.one_ended();
    }

protected:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    when_any_base() noexcept = default;
    when_any_base(when_any_base&&) noexcept = default;

    /// True when children may begin: the token is not stopped.
    bool prepare() {
        children_.need_owner();
        return !children_.stopped();
    }
    template <class A, class Slot>
    void begin(Slot& slot, std::remove_reference_t<A>& what, std::size_t index) {
        if (first_ != none) return;
        slot.operation = this;
        slot.index = index;
        try {
            children_.begin_with(run_into<A>(slot, what));
        } catch (...) {  // no memory for its coroutine: that is the outcome, and what has begun is waited for
            slot.ended_with.fail(std::current_exception());
            if (first_ == none) first_ = index;
            children_.stop();
        }
    }
    void check() {
        children_.leave();
        if (first_ == none) throw_error(errc::canceled);
    }

    fan_out children_;
    std::size_t first_ = none;
};

template <class T>
using any_filled_t = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

}  // namespace detail

/// The operation of `when_any`. Described at `when_any`.
template <class... As>
class when_any_operation : private detail::when_any_base {
    static_assert((!std::is_reference_v<await_result_t<As>> && ...),
                  "when_any: a variant can't hold references; return pointers");

public:
    using value_type = any_result<detail::any_filled_t<await_result_t<As>>...>;

    explicit when_any_operation(As&&... what) : what_(static_cast<As&&>(what)...) {}
    when_any_operation(when_any_operation&&) = default;  // only before it is awaited

    using detail::when_any_base::await_suspend;
    using detail::when_any_base::bind;
    using detail::when_any_base::ended_at_once;

    bool await_ready() {
        if (prepare()) begin_all(std::index_sequence_for<As...>{});
        return children_.goes_on();
    }
    value_type await_resume() {
        check();
        return take_first<0>();
    }

private:
    template <std::size_t... Is>
    void begin_all(std::index_sequence<Is...>) {
        (this->begin<As>(std::get<Is>(slots_), std::get<Is>(what_), Is), ...);
    }
    template <std::size_t I>
    value_type take_first() {
        if constexpr (I + 1 < sizeof...(As)) {
            if (first_ != I) return take_first<I + 1>();
        }
        auto& ended_with = std::get<I>(slots_).ended_with;
        if constexpr (std::is_void_v<decltype(ended_with.take())>) {
            ended_with.take();
            return {I, decltype(value_type::value)(std::in_place_index<I>)};
        } else {
            return {I, decltype(value_type::value)(std::in_place_index<I>, ended_with.take())};
        }
    }

    std::tuple<As...> what_;
    std::tuple<detail::fan_out_slot<detail::when_any_base, await_result_t<As>>...> slots_;
};

/// The operation of `when_any` for a vector. Described at `when_any`.
template <class A>
class when_any_vector_operation : private detail::when_any_base {
    using inner_value = await_result_t<A>;
    static_assert(!std::is_reference_v<inner_value>, "when_any: can't hold references; return pointers");

public:
    using value_type = any_value<detail::any_filled_t<inner_value>>;

    explicit when_any_vector_operation(std::vector<A> what) : what_(std::move(what)), slots_(what_.size()) {
        if (what_.empty()) detail::throw_error(errc::invalid_argument, "when_any: nothing to wait for");
    }
    when_any_vector_operation(when_any_vector_operation&&) = default;  // only before it is awaited

    using detail::when_any_base::await_suspend;
    using detail::when_any_base::bind;
    using detail::when_any_base::ended_at_once;

    bool await_ready() {
        if (prepare()) {
            for (std::size_t at = 0; at < what_.size(); ++at) this->begin<A>(slots_[at], what_[at], at);
        }
        return children_.goes_on();
    }
    value_type await_resume() {
        check();
        if constexpr (std::is_void_v<inner_value>) {
            slots_[first_].ended_with.take();
            return {first_, {}};
        } else {
            return {first_, slots_[first_].ended_with.take()};
        }
    }

private:
    std::vector<A> what_;
    std::vector<detail::fan_out_slot<detail::when_any_base, inner_value>> slots_;
};

/// Begins them in order until one has ended, cancels the others, waits for them, and returns the value of the first or
/// throws its error.
///
/// Awaitable.
/// Completes: when all that began have ended, with the index and the value of the first.
/// Buffers: as for each; none is borrowed any more when it ends. Operations on temporaries do not compile, as for
/// `when_all`.
/// Concurrency: as for each. Lvalues are borrowed until then, rvalues move in.
/// Errors: the error of the first, if it ended with one. Errors and values of the others are dropped, also a value that
/// arrives while they are being canceled: for messages that must not be lost, use `start` on each and await one after
/// another.
/// Cancellation: passed on to all. With a stopped token none begins.
/// Example:
///     auto first = co_await when_any(peer.recv(buffer), quit.wait());
///     if (first.index == 1) co_return;
template <class... As>
    requires(sizeof...(As) > 0 && (detail::adaptable<As> && ...))
[[nodiscard]] when_any_operation<As...> when_any(As&&... what) {
    (detail::must_outlive_statement<As>(), ...);
    return when_any_operation<As...>(static_cast<As&&>(what)...);
}

/// As above for any number of one type. Allocates once for them.
///
/// Awaitable.
/// Completes: when all that began have ended, with the index and the value of the first.
/// Buffers: as for each; none is borrowed any more when it ends.
/// Concurrency: as for each.
/// Errors: as above; `errc::invalid_argument` at once for an empty vector.
/// Cancellation: passed on to all. With a stopped token none begins.
/// Example:
///     auto first = co_await when_any(std::move(replicas));
///     use(first.index, first.value);
template <class A>
    requires(detail::adaptable<A> && !std::is_reference_v<A>)
[[nodiscard]] when_any_vector_operation<A> when_any(std::vector<A> what) {
    detail::must_outlive_statement<A>();
    return when_any_vector_operation<A>(std::move(what));
}

}  // namespace rdmacoro
