// A ring carries no barrier.
// expect: this algorithm is not one of this collective
#include <rdmacoro/service/group.hpp>

rdmacoro::task<> meet(rdmacoro::group& g) {
    co_await g.barrier(rdmacoro::use<rdmacoro::dissemination<>>);
    // wrong
    co_await g.barrier(rdmacoro::use<rdmacoro::ring<>>);
    // end
}

int main() {}
