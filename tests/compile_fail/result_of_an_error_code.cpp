// expect: a result of an error code would not tell it from an error; put it in a struct

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/task.hpp>

#include <system_error>

rdmacoro::task<std::error_code> last_failure() { co_return std::error_code(); }

rdmacoro::task<> use() {
    co_await last_failure();
    // wrong: a value that is taken for an error
    static_cast<void>(co_await rdmacoro::as_result(last_failure()));
    // end
}
