// node_cost: what nodes cost. `node_cost connect N` connects one node to N others at once, over shared memory and TCP, with calls and without, and
// `node_cost connect N ofi` or `verbs` over that transport, by the environment's provider or device; `node_cost
// memory N` adds N cards to an address book; `node_cost messages N` and `node_cost endpoints N` send and receive N messages of 8 bytes over shared
// memory, between nodes of two transports and over the endpoints of the same connection, and `node_cost calls N` and `node_cost link_calls N` make
// N calls of 8 bytes, to a node by its id and over the endpoints of a connection, for counting under callgrind.
#include "../tools/pingpong/program.hpp"

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/node.hpp>
#include <rdmacoro/service/node_calls.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_VERBS
#include <rdmacoro/transport/verbs_rc.hpp>
#endif
#if RDMACORO_WITH_OFI
#include <rdmacoro/transport/ofi.hpp>
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
using measured_calls = rc::node_calls<rc::shm, rc::tcp>;
#else
using measured_node = rc::node<rc::shm>;
using measured_calls = rc::node_calls<rc::shm>;
#endif

template <class T>
std::string fresh_url(long number) {
    if (std::string_view(T::name) == "tcp") return "tcp://127.0.0.1:0";
    if (std::string_view(T::name) == "ofi") return "ofi://127.0.0.1:0";
    if (std::string_view(T::name) == "verbs") return "verbs://*:0";
    return "shm://bench-nodes-" + std::to_string(::getpid()) + '-' + std::to_string(number);
}

template <class Peer>
rc::task<> greet(Peer to) {
    std::uint64_t number = to.id();
    co_await to.send(rc::bytes_of(number), 1);
}

struct kv {
    static constexpr rc::method<"kv.twice", std::uint64_t(std::uint64_t)> twice{};
};
void offer_twice(rc::service& to) {
    to.on(kv::twice, [](rc::call_context&, std::uint64_t n) -> rc::task<std::uint64_t> { co_return 2 * n; });
}

/// A node, and what makes calls over its connections if it has that; the node ends first.
template <class T>
struct participant {
    participant(rc::node_id id, const rc::node_options& options, rc::service* offered) {
        here = std::make_unique<rc::node<T>>(id, options);
        if (offered == nullptr) return;
        peers = std::make_unique<rc::node_calls<T>>(*here);
        peers->serve(*offered);
    }
    participant(const participant&) = delete;
    participant& operator=(const participant&) = delete;
    ~participant() { here.reset(); }
    std::unique_ptr<rc::node_calls<T>> peers;
    std::unique_ptr<rc::node<T>> here;
};

template <class T>
rc::task<> connect_at_once(long count, bool with_calls) {
    rc::service doubles;
    offer_twice(doubles);
    rc::service* const offered = with_calls ? &doubles : nullptr;
    rc::node_options many;
    many.connections = static_cast<std::size_t>(count) + 1;
    many.connect_limit = many.attempt_limit = many.hello_limit = 60s;
    participant<T> center(1, many, offered);
    rc::node<T>& hub = *center.here;
    std::vector<std::unique_ptr<participant<T>>> others;
    for (long n = 0; n < count; ++n) {
        others.push_back(std::make_unique<participant<T>>(static_cast<rc::node_id>(n + 2), many, offered));
        co_await others.back()->here->listen(fresh_url<T>(n));
        hub.add(others.back()->here->card());
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
        co_await each->here->peer(1).recv(rc::bytes_of(got), 1);
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (with_calls) {
        for (long n = 0; n < count; ++n) {
            const auto id = static_cast<rc::node_id>(n + 2);
            const std::uint64_t twice = co_await center.peers->call(id, kv::twice, std::uint64_t{id});
            if (twice != 2 * std::uint64_t{id})
                throw rc::error(rc::errc::protocol_violation, "node_cost: wrong sum");
        }
    }
    std::printf(
        "%s%s: %zu nodes connected and greeted at once in %.1f ms; %.1f KiB of heap for both ends of one\n",
        std::string(std::string_view(T::name)).c_str(), with_calls ? " with calls" : "", hub.connections(),
        took.count(),
        static_cast<double>(::mallinfo2().uordblks - before) / 1024 / static_cast<double>(count));
}

/// Over the transport of that name; empty: over those that every machine has.
rc::task<> connect_all(long count, std::string_view over) {
    bool known = over.empty() || over == "shm";
    for (const bool with_calls : {false, true}) {
        if (over.empty() || over == "shm") co_await connect_at_once<rc::shm>(count, with_calls);
#if RDMACORO_WITH_TCP
        known = known || over == "tcp";
        if (over.empty() || over == "tcp") co_await connect_at_once<rc::tcp>(count, with_calls);
#endif
#if RDMACORO_WITH_VERBS
        known = known || over == "verbs";
        if (over == "verbs") co_await connect_at_once<rc::verbs_rc>(count, with_calls);
#endif
#if RDMACORO_WITH_OFI
        known = known || over == "ofi";
        if (over == "ofi") co_await connect_at_once<rc::ofi<rc::provider::any>>(count, with_calls);
#endif
    }
    if (!known) throw rc::error(rc::errc::unsupported, "no transport " + std::string(over));
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

template <class Call>
rc::task<> call_often(long calls, Call call) {
    for (long i = 0; i < calls; ++i) {
        const auto n = static_cast<std::uint64_t>(i);
        const std::uint64_t twice = co_await call(n);
        if (twice != 2 * n) throw rc::error(rc::errc::protocol_violation, "node_cost: wrong answer");
    }
}
rc::task<> count_node_calls(long calls) {
    rc::service doubles;
    offer_twice(doubles);
    auto one = std::make_unique<measured_node>(1);
    auto two = std::make_unique<measured_node>(2);
    measured_calls from_one(*one);
    measured_calls from_two(*two);
    from_two.serve(doubles);
    co_await two->listen(fresh_url<rc::shm>(0));
    one->add(two->card());
    co_await call_often(calls, [&](const std::uint64_t& n) { return from_one.call(2, kv::twice, n); });
    one.reset();
    two.reset();
}
rc::task<> count_link_calls(long calls) {
    rc::service doubles;
    offer_twice(doubles);
    auto listening = co_await rc::listen<rc::shm>(fresh_url<rc::shm>(0));
    auto accepting = rc::start(listening.accept());
    auto near = co_await rc::connect<rc::shm>(listening.address());
    auto far = co_await accepting;
    {
        rc::calls<rc::shm> from_near(near);
        rc::calls<rc::shm> at_far(far, doubles);
        co_await call_often(calls, [&](const std::uint64_t& n) { return from_near.call(kv::twice, n); });
    }
    near.abort();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc == 3 || argc == 4 ? argv[1] : "";
    const long count = argc >= 3 ? std::strtol(argv[2], nullptr, 10) : 0;
    return pingpong::run_program("node_cost", [&] {
        rc::scheduler on{rc::idle::spin{}};
        if (what == "connect" && count > 0) {
            on.run(connect_all(count, argc == 4 ? argv[3] : ""));
        } else if (what == "memory" && count > 0) {
            on.run(known_nodes(count));
        } else if ((what == "messages" || what == "endpoints") && count >= 0) {
            on.run(count_messages(count, what == "endpoints"));
        } else if (what == "calls" && count >= 0) {
            on.run(count_node_calls(count));
        } else if (what == "link_calls" && count >= 0) {
            on.run(count_link_calls(count));
        } else {
            std::fprintf(
                stderr,
                "usage: node_cost connect|memory|messages|endpoints|calls|link_calls N [TRANSPORT]\n");
            return 2;
        }
        return 0;
    });
}
