// expect: a task is awaited once; write co_await std::move\(task\)

#include <rdmacoro/coro/task.hpp>

rdmacoro::task<int> answer() { co_return 42; }

rdmacoro::task<int> use() {
    auto named = answer();
    // wrong: it would be easy to await it twice
    co_await named;
    // end
    co_return co_await std::move(named);
}
