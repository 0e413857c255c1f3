// Pieces that a temporary owns die with the statement in which they were gathered.
// expect: these buffers were gathered from a temporary
// expect: give the temporary a name
#include <rdmacoro/rdmacoro.hpp>

#include <string>

rdmacoro::task<> use(rdmacoro::endpoint<rdmacoro::shm>& peer, const std::string& body) {
    co_await peer.send(rdmacoro::gather(std::string("header"), body));
    // wrong
    const auto pieces = rdmacoro::gather(std::string("header"), body);
    co_await peer.send(pieces);
    // end
}

int main() {}
