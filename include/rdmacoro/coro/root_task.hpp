// root_task: a task that was started from outside of any coroutine, by scheduler::start.
#pragma once

#include <rdmacoro/coro/detail/stop_bridge.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>

#include <stop_token>

namespace rdmacoro {

/// A task that begins in a later turn of its scheduler, for programs with an event loop of their own (see `scheduler::poll`). It does not
/// move; to store it, make it in place: `std::optional<root_task<>> serving; serving.emplace(on, serve());`.
///
/// Destroyed before the task has ended, it asks it to stop and runs the scheduler until it has. An error that `get` did not take is
/// written to stderr, in one line. For the scheduler's thread, and destroyed before the scheduler.
template <class T = void>
class [[nodiscard]] root_task {
public:
    using value_type = T;

    /// As `on.start(main, stop)`: `main` and all that it awaits are asked to stop when any thread stops `stop`. Throws
    /// `errc::invalid_argument` for an empty task.
    root_task(scheduler& on, task<T> main, const std::stop_token& stop = {})
        : on_(on), main_(std::move(main)) {
        if (!main_.handle()) detail::throw_error(errc::invalid_argument, "scheduler::start: an empty task");
        if (stop.stop_requested()) {
            source_.request_stop();
        } else {
            bridge_.connect(on_, stop, source_);
        }
        detail::run_into<task<T>>(slot_, main_).begin_soon({&on_, source_.get_token()});
        on_.wake_outside();
    }
    root_task(const root_task&) = delete;
    root_task& operator=(const root_task&) = delete;
    ~root_task() {
        if (!slot_.done) {
            request_stop();
            const auto ended = [this] { return slot_.done; };
            if (scheduler::current() == &on_) {
                on_.run_until(ended, source_);
            } else {
                on_.run_until(ended);
            }
        }
        if (!taken_ && slot_.ended_with.failure() && !stopped_canceled())
            detail::report_dropped(
                "a root task failed, and nothing asked for its outcome (see root_task::get)",
                slot_.ended_with.failure());
    }

    /// Whether it has ended.
    [[nodiscard]] bool done() const noexcept { return slot_.done; }

    /// Asks it, and all that it awaits, to stop.
    void request_stop() noexcept {
        source_.request_stop();
        on_.wake_outside();
    }

    /// Its value, once, when it has ended; or throws its exception. Throws `errc::invalid_argument` before.
    T get() {
        if (!slot_.done) detail::throw_error(errc::invalid_argument, "root_task::get: it has not ended");
        taken_ = true;
        return slot_.ended_with.take();
    }

private:
    /// It ended as a task does that was asked to stop.
    [[nodiscard]] bool stopped_canceled() const noexcept {
        return source_.stop_requested() && detail::is_canceled(slot_.ended_with.failure());
    }

    scheduler& on_;
    local_stop_source source_;
    detail::stop_bridge bridge_;
    task<T> main_;
    detail::started_slot<T> slot_;
    bool taken_ = false;
};

template <class T>
root_task<T> scheduler::start(task<T> main) {
    return root_task<T>(*this, std::move(main));
}

template <class T>
root_task<T> scheduler::start(task<T> main, std::stop_token stop) {
    return root_task<T>(*this, std::move(main), stop);
}

}  // namespace rdmacoro
