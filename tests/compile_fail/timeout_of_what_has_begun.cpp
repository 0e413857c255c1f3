// expect: timeout
// expect: adaptable

#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/timeout.hpp>

rdmacoro::task<> use() {
    auto pending = rdmacoro::start(rdmacoro::sleep_for(std::chrono::seconds(1)));
    // wrong: what has begun cannot move into the timeout
    co_await rdmacoro::timeout(rdmacoro::start(rdmacoro::sleep_for(std::chrono::seconds(1))),
                               std::chrono::seconds(2));
    // end
    co_await rdmacoro::timeout(pending, std::chrono::seconds(2));
}
