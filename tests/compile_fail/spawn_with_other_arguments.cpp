// expect: spawnable
// expect(gcc): (is_invocable|invocable|invoke)
// expect(clang): (is_invocable|invocable|invoke)

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>

rdmacoro::task<> serve(int connection) {
    static_cast<void>(connection);
    co_return;
}

void use(rdmacoro::task_group& group) {
    // wrong: the function does not take such an argument
    group.spawn(serve, "connection");
    // end
    group.spawn(serve, 1);
}
