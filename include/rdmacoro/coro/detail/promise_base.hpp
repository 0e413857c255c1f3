// What the promises of tasks and of the library's own helper coroutines share.
#pragma once

#include <rdmacoro/coro/frame_pool.hpp>
#include <rdmacoro/coro/scheduler.hpp>

namespace rdmacoro::detail {

/// Frames from the pool, and an environment that is handed to whatever is awaited.
class promise_base {
public:
    /// Hands scheduler and stop token to whatever is awaited.
    template <class Awaitable>
    Awaitable&& await_transform(Awaitable&& awaitable) noexcept {
        if constexpr (requires { awaitable.bind(env_); }) awaitable.bind(env_);
        return static_cast<Awaitable&&>(awaitable);
    }

    void set_environment(const environment& env) noexcept { env_ = env; }
    [[nodiscard]] const environment& get_environment() const noexcept { return env_; }

    static void* operator new(std::size_t bytes) { return frame_pool::allocate(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        frame_pool::deallocate(memory, bytes);
    }

private:
    environment env_{};
};

}  // namespace rdmacoro::detail
