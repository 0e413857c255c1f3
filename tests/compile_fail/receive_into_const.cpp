// Memory that must not be written can't be received into.
// expect: recv
// expect(gcc): convertible_to|constraints not satisfied
// expect(clang): convertible_to|constraints not satisfied
#include <rdmacoro/rdmacoro.hpp>

rdmacoro::task<> receive(rdmacoro::endpoint<rdmacoro::shm>& peer, std::span<const std::byte> memory) {
    static_cast<void>(memory);
    // wrong
    co_await peer.recv(memory);
    // end
    co_await peer.recv(std::span<std::byte>());
}

int main() {}
