// What outlives the statement can't borrow from what dies at its end, gathered or not.
// expect: this operation was made from a temporary
// expect: give the temporary a name
#include <rdmacoro/rdmacoro.hpp>

#include <string>

rdmacoro::task<> use(rdmacoro::endpoint<rdmacoro::shm>& peer, const std::string& body) {
    const auto names = rdmacoro::gather(body, body);
    auto fine = rdmacoro::start(peer.send(names));
    co_await fine;
    co_await peer.send(rdmacoro::gather(std::string("header"), body));
    // wrong
    auto pending = rdmacoro::start(peer.send(rdmacoro::gather(std::string("header"), body)));
    co_await pending;
    // end
}

int main() {}
