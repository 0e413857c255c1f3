// node_cost: what nodes cost. `node_cost connect N` connects one node to N others at once, over shared memory and TCP; `node_cost memory N` adds N
// cards to an address book; `node_cost messages N` and `node_cost endpoints N` send and receive N messages of 8 bytes over shared memory, between
// nodes of two transports and over the endpoints of the same connection, for counting under callgrind.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/node.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <malloc.h>
#include <unistd.h>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

namespace {

#if RDMACORO_WITH_TCP
using measured_node = rc::node<rc::shm, rc::tcp>;
#else
using measured_node = rc::node<rc::shm>;
#endif

template <class T>
std::string fresh_url(long number) {
    if (std::string_view(T::name) == "tcp") return "tcp://127.0.0.1:0";
    return "shm://bench-nodes-" + std::to_string(::getpid()) + '-' + std::to_string(number);
}

template <class Peer>
rc::task<> greet(Peer to) {
    std::uint64_t number = to.id();
    co_await to.send(rc::bytes_of(number), 1);
}

template <class T>
rc::task<> connect_at_once(long count) {
    rc::node_options many;
    many.connections = static_cast<std::size_t>(count) + 1;
    many.connect_limit = many.attempt_limit = many.hello_limit = 60s;
    rc::node<T> hub(1, many);
    std::vector<std::unique_ptr<rc::node<T>>> others;
    for (long n = 0; n < count; ++n) {
        others.push_back(std::make_unique<rc::node<T>>(static_cast<rc::node_id>(n + 2), many));
        co_await others.back()->listen(fresh_url<T>(n));
        hub.add(others.back()->card());
    }
    const std::size_t before = ::mallinfo2().uordblks;
    const auto begin = std::chrono::steady_clock::now();
    {
        rc::task_group all;
        for (long n = 0; n < count; ++n)
            all.spawn(greet<rc::node_peer<T>>, hub.peer(static_cast<rc::node_id>(n + 2)));
        co_await all.join();
    }
    for (auto& each : others) {
        std::uint64_t got = 0;
        co_await each->peer(1).recv(rc::bytes_of(got), 1);
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    std::printf(
        "%s: %zu nodes connected and greeted at once in %.1f ms; %.1f KiB of heap for both ends of one\n",
        std::string(std::string_view(T::name)).c_str(), hub.connections(), took.count(),
        static_cast<double>(::mallinfo2().uordblks - before) / 1024 / static_cast<double>(count));
}

rc::task<> connect_all(long count) {
    co_await connect_at_once<rc::shm>(count);
#if RDMACORO_WITH_TCP
    co_await connect_at_once<rc::tcp>(count);
#endif
}

rc::task<> known_nodes(long count) {
    measured_node here(1);
    const std::size_t before = ::mallinfo2().uordblks;
    for (long n = 0; n < count; ++n) {
        const auto id = static_cast<rc::node_id>(n + 2);
        here.add({.id = id,
                  .born = rc::generation{7},
                  .host = here.card().host,
                  .urls = {"shm://service-" + std::to_string(id),
                           "tcp://10.0.0.1:" + std::to_string(id % 60000)}});
    }
    std::printf("%.0f bytes for a known node with two URLs\n",
                static_cast<double>(::mallinfo2().uordblks - before) / static_cast<double>(count));
    co_return;
}

template <class Near, class Far>
rc::task<> exchange(Near& near, Far& far, long messages) {
    std::uint64_t out = 0;
    std::uint64_t in = 0;
    for (long i = 0; i < messages; ++i) {
        out = static_cast<std::uint64_t>(i);
        co_await near.send(rc::bytes_of(out), 7);
        co_await far.recv(rc::bytes_of(in), 7);
        if (in != out) throw rc::error(rc::errc::protocol_violation, "node_cost: wrong payload");
    }
}

rc::task<> count_messages(long messages, bool by_endpoints) {
    measured_node one(1);
    measured_node two(2);
    co_await two.listen(fresh_url<rc::shm>(0));
    one.add(two.card());
    auto near = one.peer(2);
    auto far = two.peer(1);
    co_await greet(near);
    std::uint64_t got = 0;
    co_await far.recv(rc::bytes_of(got), 1);
    if (by_endpoints) {
        const rc::node_hold held = near.hold();
        rc::endpoint<rc::shm>* ends[2] = {};
        const auto find = [&ends](std::size_t at) {
            return [&ends, at](auto& end) {
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(end)>, rc::endpoint<rc::shm>>)
                    ends[at] = &end;
            };
        };
        near.visit(find(0));
        far.visit(find(1));
        co_await exchange(*ends[0], *ends[1], messages);
    } else {
        co_await exchange(near, far, messages);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc == 3 ? argv[1] : "";
    const long count = argc == 3 ? std::strtol(argv[2], nullptr, 10) : 0;
    try {
        rc::scheduler on{rc::idle::spin{}};
        if (what == "connect" && count > 0) {
            on.run(connect_all(count));
        } else if (what == "memory" && count > 0) {
            on.run(known_nodes(count));
        } else if ((what == "messages" || what == "endpoints") && count >= 0) {
            on.run(count_messages(count, what == "endpoints"));
        } else {
            std::fprintf(stderr, "usage: node_cost connect|memory|messages|endpoints N\n");
            return 2;
        }
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "node_cost: %s\n", failure.what());
        return 1;
    }
}
