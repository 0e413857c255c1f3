// Calls of coro_rpc (yalantinglibs), by coroutines: one thread each side; 64 requests are sent ahead of the answers.

#include "common.hpp"

#include <ylt/coro_rpc/coro_rpc_client.hpp>
#include <ylt/coro_rpc/coro_rpc_server.hpp>

#include <deque>
#include <thread>

namespace {

std::uint64_t plus(std::uint64_t number) { return number + 1; }

using async_simple::coro::Lazy;

void serve(std::uint16_t port) {
    coro_rpc::coro_rpc_server server(1, port, "127.0.0.1");
    server.register_handler<plus>();
    static_cast<void>(server.start());
}

Lazy<void> one(coro_rpc::coro_rpc_client& client, std::uint64_t number) {
    const auto got = co_await client.call<plus>(number);
    if (!got) throw std::runtime_error(got.error().msg);
    rpc_peer::check(*got, number + 1);
}

Lazy<void> measure_by(coro_rpc::coro_rpc_client& client, std::uint16_t port, std::size_t rounds,
                      std::vector<double>& ns, double& seconds) {
    const auto failed = co_await client.connect("127.0.0.1", std::to_string(port));
    if (failed) throw std::runtime_error("it does not connect");
    for (std::size_t i = 0; i < rounds / 10; ++i) co_await one(client, i);
    for (std::size_t i = 0; i < rounds; ++i) {
        const auto before = rpc_peer::steady::now();
        co_await one(client, i);
        ns.push_back(std::chrono::duration<double, std::nano>(rpc_peer::steady::now() - before).count());
    }
    for (int turn = 0; turn < 2; ++turn) {
        using answer = coro_rpc::async_rpc_result<std::uint64_t>;
        std::deque<Lazy<answer>> under_way;
        const auto before = rpc_peer::steady::now();
        std::uint64_t ended = 0;
        for (std::uint64_t i = 0; ended < rounds; ++i) {
            if (i >= rounds || under_way.size() == rpc_peer::window) {
                auto next = std::move(under_way.front());
                under_way.pop_front();
                const auto got = co_await std::move(next);
                if (!got) throw std::runtime_error(got.error().msg);
                rpc_peer::check(got->result(), ++ended);
            }
            if (i < rounds) {
                auto sent = co_await client.send_request<plus>(i);
                under_way.push_back(std::move(sent));
            }
        }
        seconds = std::chrono::duration<double>(rpc_peer::steady::now() - before).count();
    }
}

void measure(std::uint16_t port, std::size_t rounds, rpc_peer::figures& into) {
    coro_io::io_context_pool pool(1);
    std::thread running([&pool] { pool.run(); });
    coro_rpc::coro_rpc_client client(pool.get_executor());
    std::vector<double> ns;
    ns.reserve(rounds);
    double seconds = 0;
    async_simple::coro::syncAwait(measure_by(client, port, rounds, ns, seconds).via(pool.get_executor()));
    into.set(std::move(ns), static_cast<double>(rounds) / seconds / 1e6);
    pool.stop();
    running.join();
}

}  // namespace

int main(int argc, char** argv) { return rpc_peer::run(argc, argv, "coro_rpc", serve, measure); }
