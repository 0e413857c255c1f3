// describe_signal: SIGUSR1 asks schedulers to print what waits.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>

#include <atomic>
#include <cstdint>

namespace rdmacoro::detail {

/// A scheduler that has asked. Never freed: a handler may look at it at any time.
struct signal_place : posted_node {
    std::atomic<scheduler*> owner{nullptr};
    std::atomic<bool> asked{false};          // the node is posted
    std::atomic<std::uint32_t> handlers{0};  // that look at it now
    std::atomic<bool> taken{false};
};
inline constinit signal_place signal_places[64];

/// A service of a scheduler; see `scheduler::describe_on_sigusr1`. The handler posts a node to each scheduler that asked, which is lock-free
/// and wakes a parked one; the scheduler prints at its next turn. Throws `errc::no_resources` when 64 schedulers have asked.
class describe_signal {
public:
    explicit describe_signal(scheduler& owner);
    describe_signal(const describe_signal&) = delete;
    describe_signal& operator=(const describe_signal&) = delete;
    ~describe_signal();

private:
    static void handle(int) noexcept;

    signal_place* own_ = nullptr;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/describe_signal.ipp>
#endif
