// expect: spawn
// expect: awaitable

#include <rdmacoro/coro/task_group.hpp>

int plain() { return 1; }

void use(rdmacoro::task_group& group) {
    // wrong: it gives nothing that can be awaited
    group.spawn(plain);
    // end
    static_cast<void>(group.size());
}
