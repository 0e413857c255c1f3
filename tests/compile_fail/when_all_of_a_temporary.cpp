// What outlives the statement can't borrow from what dies at its end. co_await of the same is fine.
// expect: this operation was made from a temporary
// expect: give the temporary a name
#include <rdmacoro/rdmacoro.hpp>

#include <vector>

rdmacoro::task<> use(rdmacoro::endpoint<rdmacoro::shm>& peer) {
    co_await peer.send(std::vector<std::byte>(100));
    // wrong
    auto both =
        rdmacoro::when_all(rdmacoro::sleep_for(rdmacoro::duration(1)),
                           rdmacoro::timeout(peer.send(std::vector<std::byte>(100)), rdmacoro::duration(1)));
    co_await std::move(both);
    // end
}

int main() {}
