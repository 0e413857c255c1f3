// A get fills elements that lie in a row.
// expect(gcc): use of deleted function .*takes_text_vectors_and_spans::rdma_get.*Refused = std::(__cxx11::)?list<int>
// expect(clang): call to deleted member function 'rdma_get'
// expect: one range of trivially copyable elements in a row, neither const nor temporary
#include <rdmacoro/rdmacoro.hpp>

#include <list>
#include <vector>

rdmacoro::task<> get(rdmacoro::endpoint<rdmacoro::shm>& peer, std::list<int> wrong, std::vector<int> right) {
    static_cast<void>(wrong);
    // wrong
    co_await peer.rdma_get({}, wrong);
    // end
    co_await peer.rdma_get({}, right);
}

int main() {}
