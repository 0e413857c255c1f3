// Memory that must not be written can't be received into.
// expect(gcc): use of deleted function .*takes_text_vectors_and_spans::recv.*Refused = std::span<const std::byte
// expect(clang): call to deleted member function 'recv'
// expect(clang): Refused = std::span<const std::byte> &\] has been explicitly deleted
// expect: neither const nor temporary
#include <rdmacoro/rdmacoro.hpp>

rdmacoro::task<> receive(rdmacoro::endpoint<rdmacoro::shm>& peer, std::span<const std::byte> memory) {
    static_cast<void>(memory);
    // wrong
    co_await peer.recv(memory);
    // end
    co_await peer.recv(std::span<std::byte>());
}

int main() {}
