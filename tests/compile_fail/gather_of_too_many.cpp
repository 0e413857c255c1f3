// gather keeps up to three pieces by value; more stay in an array of the caller's.
// expect: gather
#include <rdmacoro/memory/buffers.hpp>

#include <vector>

int main() {
    const std::vector<std::byte> piece(1);
    static_cast<void>(rdmacoro::gather(piece, piece, piece));
    // wrong
    static_cast<void>(rdmacoro::gather(piece, piece, piece, piece));
    // end
}
