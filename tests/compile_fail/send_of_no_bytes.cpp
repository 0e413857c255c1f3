// Only bytes are sent: what else something means is for the caller to say, with std::as_bytes.
// expect: send
// expect(gcc): convertible_to|constraints not satisfied
// expect(clang): convertible_to|constraints not satisfied
#include <rdmacoro/rdmacoro.hpp>

#include <string>

rdmacoro::task<> send(rdmacoro::endpoint<rdmacoro::shm>& peer, std::string text) {
    // wrong
    co_await peer.send(text);
    // end
    co_await peer.send(std::as_bytes(std::span(text)));
}

int main() {}
