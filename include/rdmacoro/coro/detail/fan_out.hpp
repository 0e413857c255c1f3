// Several awaitables at a time for one awaiting coroutine: what when_all and when_any share.
#pragma once

#include <rdmacoro/coro/detail/adapted.hpp>
#include <rdmacoro/coro/detail/child.hpp>

#include <cstddef>

namespace rdmacoro::detail {

/// Counts the children of one operation and resumes who waits for it when the last has ended.
class fan_out {
public:
    fan_out() noexcept = default;
    /// Only before it begins.
    fan_out(fan_out&&) noexcept {}
    ~fan_out() {
        if (running_ != 0) fatal("when_all or when_any was destroyed while pending; await it first");
    }

    void bind(const environment& env) noexcept {
        owner_ = env.owner;
        source_.follow(env.stop);
    }
    void begin_with(child made) noexcept {
        ++running_;
        made.begin_now({owner_, source_.get_token()});
    }
    void need_owner() {
        if (owner_ == nullptr) owner_ = &running_scheduler();
    }
    void stop() noexcept { source_.request_stop(); }
    [[nodiscard]] bool stopped() const noexcept { return source_.stop_requested(); }

    [[nodiscard]] bool ended() const noexcept { return running_ == 0; }
    void wait(std::coroutine_handle<> awaiting) noexcept { waiter_ = awaiting; }
    [[nodiscard]] std::coroutine_handle<> one_ended() noexcept {
        return --running_ == 0 ? waiter_ : std::noop_coroutine();
    }

private:
    local_stop_source source_;
    scheduler* owner_ = nullptr;
    std::size_t running_ = 0;
    std::coroutine_handle<> waiter_ =
        std::noop_coroutine();  // nobody waits while the children are being begun
};

/// Where one child of `Operation` leaves its outcome. The operation is told of each end.
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
