// The statement that made the operation is over, and its vector is freed.
// expect: this operation was made from a temporary
#include <rdmacoro/rdmacoro.hpp>

#include <vector>

rdmacoro::task<> use(rdmacoro::endpoint<rdmacoro::shm>& peer, rdmacoro::remote_region there) {
    co_await peer.rdma_put(std::vector<std::byte>(100), there);
    // wrong
    auto put = peer.rdma_put(std::vector<std::byte>(100), there);
    co_await put;
    // end
}

int main() {}
