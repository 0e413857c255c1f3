// The part of calls with arguments of fixed length that does not depend on the method: their messages, in place.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/detail/any_operations.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/method.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro::detail {

class calls_base;

/// The part of `fixed_call` that does not depend on the method.
class fixed_call_base {
public:
    /// For `timeout`: the peer is told that the call has so much time.
    void set_limit(duration limit) noexcept { limit_ = time_to_send(limit); }

    void bind(const environment& env) noexcept { env_ = env; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
        return suspend(awaiting);
    }
    /// As that of operations.
    [[nodiscard]] bool ended_at_once() const noexcept {
        return stage_ == stage::receiving ? receive_.ended_at_once() : !further_.handle();
    }

protected:
    explicit fixed_call_base(calls_base& over) noexcept : over_(&over) {}
    fixed_call_base(fixed_call_base&& other) noexcept
        : over_(other.over_), limit_(other.limit_) {}  // only before it is awaited
    ~fixed_call_base();

    /// Sends the request, which stays where it is, and begins to receive. True: it has ended.
    bool begin(const method_facts& of, std::span<const std::byte> request);
    /// The value of the answer, still as bytes, which are here. Throws as `calls::call` says.
    [[nodiscard]] std::span<const std::byte> end(const method_facts& of);

    /// The call is over, and its answer is not needed any more.
    void finish() noexcept;

    [[nodiscard]] std::uint32_t time() const noexcept { return limit_; }

private:
    enum class stage : std::uint8_t {
        fresh,
        over,       ///< there is no operation
        sending,    ///< the request, or it was not sent
        receiving,  ///< the answer, or it is here
        answered,   ///< by the task
    };

    std::coroutine_handle<> suspend(std::coroutine_handle<> awaiting) noexcept;
    void receive();
    void end_operation() noexcept;
    void wait_for_sent(const method_facts& of);
    void give_up() noexcept;
    std::span<const std::byte> end_unusually(const method_facts& of);

    calls_base* over_;
    std::uint32_t limit_ = 0;
    stage stage_ = stage::fresh;
    bool counted_ = false;
    tag_type asked_;
    environment env_{};
    union {
        any_send send_;
        any_lent_receive receive_;
        message answer_;
    };
    task<message> further_;  // of a call that cannot be sent at once; destroyed before what it refers to
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/calls_base.hpp>
#endif
