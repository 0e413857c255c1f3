// expect: a result<T&> cannot be; return a pointer

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/task.hpp>

rdmacoro::task<int&> reference(int& value) { co_return value; }

rdmacoro::task<> use(int& value) {
    co_await reference(value);
    // wrong: a result holds a value
    static_cast<void>(co_await rdmacoro::as_result(reference(value)));
    // end
}
