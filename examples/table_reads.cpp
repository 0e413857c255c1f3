// table_reads: a table in one process's memory, read by others without its taking part, while it is changed.
//
//     table_reads serve URL & table_reads read URL 100000
#include "by_url.hpp"

#include <array>
#include <chrono>
#include <random>
#include <vector>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

constexpr std::size_t rows = 10'000;

/// A get may see a row that is half changed: the sum tells.
struct row {
    std::uint64_t sum = 0;
    std::array<std::uint64_t, 15> values{};

    [[nodiscard]] std::uint64_t expected(std::uint64_t number) const {
        std::uint64_t total = number + 1;
        for (const std::uint64_t value : values) total = total * 31 + value;
        return total;
    }
};

/// A client: it is told where the table is, and is then left alone until it closes.
template <rc::transport T>
rc::task<> tell(rc::endpoint<T> peer, rc::remote_region table) {
    co_await peer.send(rc::bytes_of(table));
    static_cast<void>(co_await rc::as_result(peer.recv(rc::mutable_buffers())));
}

template <rc::transport T>
rc::task<> serve(std::string_view url) {
    typename T::domain domain(*rc::scheduler::current());
    auto listener = co_await rc::listen<T>(domain, url);
    std::cout << "listening at " << listener.address() << std::endl;

    std::vector<row> table(rows);
    for (std::size_t i = 0; i < rows; ++i) table[i].sum = table[i].expected(i);
    const rc::region region = domain.register_memory(rc::bytes_of(table), rc::access_rights::remote_read);

    rc::task_group clients;
    clients.spawn([&]() -> rc::task<> {
        for (;;) clients.spawn(tell<T>, co_await listener.accept(), region.remote());
    });
    for (std::size_t i = 0;; i = (i + 7919) % rows) {
        for (std::uint64_t& value : table[i].values) ++value;
        table[i].sum = table[i].expected(i);
        co_await rc::sleep_for(1ms);
    }
}

/// Reads random rows, 32 at a time. A row that was being changed is read again.
template <rc::transport T>
rc::task<> read(std::string_view url, std::uint64_t count) {
    auto peer = co_await rc::connect<T>(url, {.retry_for = 5s});
    rc::remote_region table;
    co_await peer.recv(rc::bytes_of(table));

    struct {
        std::size_t number;
        row got;
    } slots[32];
    const auto get = [&](auto& slot) {
        return peer.rdma_get(table.part(slot.number * sizeof(row), sizeof(row)), rc::bytes_of(slot.got));
    };
    rc::window<decltype(get(slots[0]))> gets(std::size(slots));
    std::minstd_rand random;
    std::uint64_t begun = 0, again = 0;
    for (std::uint64_t read = 0; read < count; ++read) {
        for (; begun < count && !gets.full(); ++begun) {
            auto& slot = slots[begun % std::size(slots)];
            slot.number = random() % rows;
            gets.start(get(slot));
        }
        co_await gets.next();
        auto& slot = slots[read % std::size(slots)];
        for (; slot.got.sum != slot.got.expected(slot.number); ++again) co_await get(slot);
    }
    std::cout << "read " << count << " rows\n";
    if (again > 0) std::cerr << again << " were being changed and were read again\n";
    co_await peer.close();
}

int main(int argc, char** argv) {
    const std::string_view role = argc > 2 ? argv[1] : "";
    if (role == "serve" && argc == 3)
        return run_by_url(argv[2], [=]<class T>() { return serve<T>(argv[2]); });
    if (role == "read" && argc == 4) {
        return run_by_url(argv[2], [=]<class T>() { return read<T>(argv[2], std::stoull(argv[3])); });
    }
    std::cerr << "usage: table_reads serve URL | table_reads read URL COUNT\n";
    return 2;
}
