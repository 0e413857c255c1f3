// Whether the zero at a literal's end belongs to it must be said.
// expect(gcc): use of deleted function .*takes_text_vectors_and_spans::send.*Refused = const char \(&\)\[6\]
// expect(clang): Refused = const char \(&\)\[6\]\] has been explicitly deleted
// expect: a literal as std::string_view
#include <rdmacoro/rdmacoro.hpp>

#include <string_view>

rdmacoro::task<> send(rdmacoro::mailbox<rdmacoro::shm>& peers) {
    // wrong
    co_await peers.send(0, "hello", 7);
    // end
    co_await peers.send(0, std::string_view("hello"), 7);
}

int main() {}
