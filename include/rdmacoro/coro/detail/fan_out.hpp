// Several awaitables at a time for one awaiting coroutine: the common part of when_all and when_any.
#pragma once

#include <rdmacoro/coro/detail/adaptor.hpp>
#include <rdmacoro/coro/detail/child.hpp>

#include <cstddef>

namespace rdmacoro::detail {

/// Counts the children of one operation and resumes the awaiting coroutine when the last has ended.
class fan_out {
public:
    fan_out() noexcept = default;
    /// Only before it begins.
    fan_out(fan_out&&) noexcept {}
    ~fan_out();

    void bind(const environment& env) noexcept;
    void begin_with(child made) noexcept;
    void need_owner();
    void stop() noexcept { source_.request_stop(); }
    /// All have ended: the token of the awaiting coroutine may end before this does.
    void leave() noexcept { source_.unfollow(); }
    [[nodiscard]] bool stopped() const noexcept { return source_.stop_requested(); }

    /// After all children have begun: whether the awaiting coroutine goes on without being suspended.
    [[nodiscard]] bool goes_on() noexcept { return running_ == 0 && owner_->may_go_on(); }
    [[nodiscard]] bool all_ended() const noexcept { return running_ == 0; }
    void wait(std::coroutine_handle<> awaiting) noexcept;
    [[nodiscard]] std::coroutine_handle<> one_ended() noexcept {
        return --running_ == 0 ? waiter_ : std::noop_coroutine();
    }

private:
    local_stop_source source_;
    scheduler* owner_ = nullptr;
    std::size_t running_ = 0;
    std::coroutine_handle<> waiter_ = std::noop_coroutine();  // set after all children have begun
    ready_node all_ended_;
};

/// Stores the outcome of one child of `Operation`, and notifies the operation of its end.
template <class Operation, class T>
class fan_out_slot final : public child_owner {
public:
    fan_out_slot() noexcept = default;
    fan_out_slot(fan_out_slot&&) noexcept {}  // only before it begins

    template <class U>
    void set(U&& value) {
        ended_with.set(static_cast<U&&>(value));
    }
    void child_failed(std::exception_ptr failure) noexcept override { ended_with.fail(std::move(failure)); }
    std::coroutine_handle<> child_ended() noexcept override {
        return operation->slot_ended(index, ended_with.failure());
    }

    Operation* operation = nullptr;
    std::size_t index = 0;
    outcome<T> ended_with;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/fan_out.ipp>
#endif
