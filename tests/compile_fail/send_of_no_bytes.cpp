// What does not lie in a row is not sent; the message names its type.
// expect(gcc): use of deleted function .*takes_text_vectors_and_spans::send.*Refused = std::(__cxx11::)?list<int>
// expect(clang): call to deleted member function 'send'
// expect(clang): Refused = std::list<int> &\] has been explicitly deleted
// expect: ranges of trivially copyable elements in a row
#include <rdmacoro/rdmacoro.hpp>

#include <list>
#include <string>

rdmacoro::task<> send(rdmacoro::endpoint<rdmacoro::shm>& peer, std::string text, std::list<int> numbers) {
    static_cast<void>(numbers);
    // wrong
    co_await peer.send(numbers);
    // end
    co_await peer.send(text);
}

int main() {}
