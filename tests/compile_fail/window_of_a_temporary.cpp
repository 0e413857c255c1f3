// A window keeps its operations beyond the statement.
// expect: this operation was made from a temporary
#include <rdmacoro/rdmacoro.hpp>

#include <vector>

rdmacoro::task<> use(rdmacoro::endpoint<rdmacoro::shm>& peer) {
    const std::vector<std::byte> kept(100);
    rdmacoro::window<decltype(peer.send(kept))> sends(32);
    co_await sends.add(peer.send(kept));
    // wrong
    co_await sends.add(peer.send(std::vector<std::byte>(100)));
    // end
    co_await sends.all();
}

int main() {}
