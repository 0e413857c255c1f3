// expect: is_nothrow_move_constructible

#include <rdmacoro/coro/channel.hpp>
#include <rdmacoro/coro/thread_channel.hpp>

struct throws_when_moved {
    throws_when_moved() = default;
    throws_when_moved(throws_when_moved&&) noexcept(false) {}
};

rdmacoro::channel<int>* fine = nullptr;
// wrong: a value could get lost on its way
rdmacoro::channel<throws_when_moved>* thrower = nullptr;
// end
