// own_token: what a collective awaits first, on the scheduler of its group.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <coroutine>

namespace rdmacoro::detail {

/// Ends with the awaiting coroutine's stop token. On another scheduler than the group's it ends the process with a message: what the group waits for would
/// come while that one runs. Throws where that one is gone.
struct own_token {
    const scheduler& of_group;
    local_stop_token token{};
    bool gone = false;
    void bind(const environment& env) noexcept {
        token = env.stop;
        if (env.owner == &of_group || env.owner == nullptr) [[likely]]
            return;
        awaited_elsewhere_while_it_lives(&of_group, *env.owner);
        gone = true;
    }
    static bool await_ready() noexcept { return true; }
    static void await_suspend(std::coroutine_handle<>) noexcept {}
    [[nodiscard]] local_stop_token await_resume() const {
        if (gone) [[unlikely]]
            throw error(errc::closed, "group: its scheduler is gone");
        return token;
    }
};

}  // namespace rdmacoro::detail
