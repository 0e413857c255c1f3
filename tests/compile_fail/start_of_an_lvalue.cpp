// expect: start
// expect: movable_awaitable

#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>

rdmacoro::task<> use() {
    auto nap = rdmacoro::sleep_for(std::chrono::seconds(1));
    // wrong: what begins moves to where it stays
    auto begun = rdmacoro::start(nap);
    co_await begun;
    // end
    auto pending = rdmacoro::start(std::move(nap));
    co_await pending;
}
