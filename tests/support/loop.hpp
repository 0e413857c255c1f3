#pragma once

// The loop that drives a scheduler of the conformance suite. The environment variable RDMACORO_TEST_LOOP says which one, so that
// the same cases run in the scheduler's own loop (`own`, also without the variable), as guests of a bare loop of epoll (`epoll`),
// and inside an asio::io_context (`asio`, in programs that are linked with loops/asio.cpp).

#include "support/run.hpp"

#include <rdmacoro/coro/idle.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>
#include <variant>

namespace rdmacoro::test {

/// The wait after a turn without progress. A bare loop of epoll waits in any case, where the strategy ever parks; under Asio `impatient`
/// is a strategy that parks at once, as the context could not wait with it.
using any_idle = std::variant<impatient, idle::yield, idle::adaptive>;

/// A scheduler and the loop that it runs in. Destroyed after all that is made on the scheduler.
class test_loop {
public:
    test_loop() = default;
    test_loop(const test_loop&) = delete;
    test_loop& operator=(const test_loop&) = delete;
    virtual ~test_loop() = default;

    [[nodiscard]] virtual scheduler& on() noexcept = 0;
    /// Runs until `main` has ended. Ends the process where nothing moves for 20 s.
    virtual void drive(task<> main, std::stop_token stop) = 0;
    /// How often another loop than the scheduler's own has waited for it.
    [[nodiscard]] virtual std::uint64_t waits() const noexcept = 0;

    void run(task<> main, std::stop_token stop = {}) { drive(std::move(main), std::move(stop)); }
    template <class T>
    T run(task<T> main, std::stop_token stop = {}) {
        std::optional<T> value;
        drive([](task<T> what, std::optional<T>& into) -> task<> { into.emplace(co_await std::move(what)); }(
                                                           std::move(main), value),
              std::move(stop));
        return *std::move(value);
    }
};

/// `own`, `epoll` or `asio`. Throws where the variable says something else.
[[nodiscard]] std::string_view loop_name();

/// The loop that the variable names, with a scheduler of its own.
[[nodiscard]] std::unique_ptr<test_loop> make_loop(any_idle strategy = impatient{});

/// The maker of loops of Asio; nullptr in programs without it.
using loop_maker = std::unique_ptr<test_loop> (*)(any_idle);
extern constinit loop_maker make_asio_loop;

}  // namespace rdmacoro::test
