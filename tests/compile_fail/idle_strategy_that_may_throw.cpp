// expect: strategy

#include <rdmacoro/coro/scheduler.hpp>

struct may_throw {
    rdmacoro::idle::action next(rdmacoro::clock&) { return rdmacoro::idle::action::park; }
    void progress() noexcept {}
};

void use() {
    // wrong: next is called between two polls, where nothing catches
    rdmacoro::scheduler thrower(may_throw{});
    // end
    rdmacoro::scheduler fine(rdmacoro::idle::spin{});
}
