// rdma: one side opens a piece of its memory, the other reads and writes it without a receive or a send for each access.
//
//     rdma open URL & rdma use URL
#include "by_url.hpp"

#include <numeric>
#include <vector>

namespace rc = rdmacoro;

/// Owns the memory.
template <rc::transport T>
rc::task<> open_memory(std::string_view url) {
    typename T::domain domain(
        *rc::scheduler::current());  // where memory is registered; outlives its regions and connections
    auto listener = co_await rc::listen<T>(domain, url);
    std::cout << "listening at " << listener.address() << std::endl;
    auto peer = co_await listener.accept();

    std::vector<int> table(1000);
    std::iota(table.begin(), table.end(), 0);
    const rc::region region = domain.register_memory(rc::bytes_of(table), rc::access_rights::all);

    // What the peer needs to reach it are 32 bytes: address, length, rights and a key that cannot be guessed.
    co_await peer.send(rc::bytes_of(region.remote()));

    std::byte done;
    co_await peer.recv(rc::bytes_of(done));
    std::cout << "table[500] is now " << table[500] << '\n';

    // Nothing comes: this waits until the other side has ended.
    static_cast<void>(co_await rc::as_result(peer.recv(rc::bytes_of(done))));
    co_await peer.close();
}  // the region goes: from here on the key opens nothing

/// Uses it.
template <rc::transport T>
rc::task<> use_memory(std::string_view url) {
    auto peer = co_await rc::connect<T>(url);
    rc::remote_region table;
    co_await peer.recv(rc::bytes_of(table));

    int value = 0;
    const auto here = rc::bytes_of(value);
    const rc::remote_region there = table.part(500 * sizeof(int), sizeof(int));
    co_await peer.rdma_get(there, here);
    std::cout << "read " << value << '\n';

    value *= 2;
    co_await peer.rdma_put(here, there);  // when it ends the peer's memory has it

    const std::byte done{1};
    co_await peer.send(rc::bytes_of(done));

    // Refused by the other side. Where its adapter does that the link ends, too: link_capabilities().ends_on_refusal.
    auto past = co_await rc::as_result(peer.rdma_get(table.part(table.length, sizeof(int)), here));
    std::cout << "past the end: " << past.error().message() << '\n';
    co_await peer.close();
}

int main(int argc, char** argv) {
    const std::string_view role = argc == 3 ? argv[1] : "";
    if (role == "open") return run_by_url(argv[2], [&]<class T>() { return open_memory<T>(argv[2]); });
    if (role == "use") return run_by_url(argv[2], [&]<class T>() { return use_memory<T>(argv[2]); });
    std::cerr << "usage: rdma open URL | rdma use URL\n";
    return 2;
}
