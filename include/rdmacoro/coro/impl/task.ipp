// How a scheduler runs a task.
#pragma once

#include <rdmacoro/coro/detail/stop_bridge.hpp>
#include <rdmacoro/coro/impl/scheduler.ipp>
#include <rdmacoro/coro/task.hpp>

#include <memory>

namespace rdmacoro {

namespace detail {
RDMACORO_COLD void task_promise_base::unhandled_exception() noexcept {
    failure_ = std::current_exception();
    const auto& [owner, stop] = get_environment();
    if (!awaited_ || owner == nullptr || owner->may_go_on()) return;
    std::construct_at(&later_);
    later_.waiter = std::exchange(continuation_, std::noop_coroutine());
    later_.stop = stop;
    owner->make_ready(later_);
}
RDMACORO_COLD void task_promise_base::rethrow() const { std::rethrow_exception(failure_); }

RDMACORO_COLD void awaited_wrongly(bool ended) noexcept {
    fatal(ended ? "a task was awaited that has ended before: a task is awaited once"
                : "a task was awaited that holds no coroutine: it was default constructed, or moved from");
}
}  // namespace detail

RDMACORO_DECL void scheduler::run_frame(std::coroutine_handle<> frame, detail::promise_base* promise) {
    if (promise == nullptr) detail::throw_error(errc::invalid_argument, "scheduler::run: an empty task");
    if (frame.done()) detail::awaited_wrongly(true);
    const local_stop_token stop = promise->get_environment().stop;
    promise->set_environment({this, stop});
    detail::ready_node root;
    root.waiter = frame;
    root.stop = stop;
    const run_scope current(*this, nullptr);
    make_ready(root);
    loop([=] { return frame.done(); });
}

RDMACORO_DECL void scheduler::run_frame(std::coroutine_handle<> frame, detail::promise_base* promise,
                                        const std::stop_token& stop) {
    const run_scope current(*this, nullptr);
    local_stop_source source;
    detail::stop_bridge bridge;
    if (stop.stop_requested()) {
        source.request_stop();
    } else {
        bridge.connect(*this, stop, source);
    }
    if (promise != nullptr) promise->set_environment({this, source.get_token()});
    run_frame(frame, promise);
}

}  // namespace rdmacoro
