// helper_call: a function that blocks, on a thread of its own, awaited by a coroutine.
#pragma once

#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/service/detail/launcher.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rdmacoro::detail {

inline constexpr wait_facts helper_call_facts{"a call to the launcher", "it has not answered",
                                              next_actor::outside};

/// Calls a function on a new thread, which blocks all signals. When it is canceled, the function is told by its patience, and waited for; one
/// that `may_hang` is left to itself: its thread ends when it returns, which no party waits for, and owns all that it uses.
class [[nodiscard]] helper_call final : public basic_operation<helper_call, void>, private parked_wait {
public:
    helper_call(std::function<void(const patience&)> work, time_point until, bool may_hang)
        : basic_operation(nullptr), work_(std::move(work)), until_(until), may_hang_(may_hang) {}
    /// Only before it begins.
    helper_call(helper_call&& other) noexcept
        : basic_operation(std::move(other)),
          parked_wait(),
          work_(std::move(other.work_)),
          until_(other.until_),
          may_hang_(other.may_hang_) {}

    void start() noexcept;
    void cancel() noexcept;
    void finish_canceled() noexcept { canceled_ = true; }
    [[nodiscard]] result<void> outcome() noexcept;
    /// Throws what the function threw.
    [[noreturn]] RDMACORO_DECL void throw_failure() const;

private:
    struct shared;
    static void run(const std::shared_ptr<shared>& with) noexcept;
    static void arrived(posted_node& at) noexcept;

    std::function<void(const patience&)> work_;
    time_point until_;
    bool may_hang_;
    bool canceled_ = false;
    std::exception_ptr failure_;
    std::shared_ptr<shared> shared_;
    std::thread thread_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/helper_call.ipp>
#endif
