// worker_pool: many threads send and call through the one connection of a node, whose methods run on a pool of threads.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/gate.hpp>

#include <atomic>
#include <exception>
#include <iostream>
#include <string_view>
#include <thread>
#include <vector>

namespace rc = rdmacoro;

struct primes {
    static constexpr rc::method<"primes.below", std::uint32_t(std::uint32_t)> below{};
};

constexpr std::uint32_t threads = 8, calls_each = 25, messages_each = 1000;
constexpr rc::tag_type progress_tag = 7;

std::uint32_t count_primes(std::uint32_t limit) {
    std::uint32_t found = 0;
    for (std::uint32_t n = 2; n < limit; ++n) {
        std::uint32_t by = 2;
        while (by * by <= n && n % by != 0) ++by;
        if (by * by > n) ++found;
    }
    return found;
}

/// What each thread does: it has a pass, and no scheduler. Returns what ended it, such as a lost node.
std::exception_ptr work(rc::gate_pass<rc::node_calls<rc::shm>> pass, std::uint32_t number,
                        std::atomic<std::uint64_t>& sum) try {
    for (std::uint32_t n = 0; n < messages_each; ++n) pass.send(2, rc::bytes_of(number), progress_tag);
    for (std::uint32_t n = 0; n < calls_each; ++n) sum += pass.call(2, primes::below, number * 100 + n).get();
    pass.flush();
    return nullptr;
} catch (...) {
    return std::current_exception();
}

/// Usually another process: it counts primes on two threads, and its own stays free for the network.
rc::task<> serve(rc::node<rc::shm>& here, std::uint64_t& heard) {
    co_await here.listen("shm://worker-pool");
    auto peer = here.peer(1);
    std::uint32_t from = 0;
    while (co_await rc::as_result(peer.recv(rc::bytes_of(from), progress_tag))) ++heard;
}

rc::task<> run(rc::scheduler& mine) {
    rc::scheduler_pool pool(2);
    rc::service counting;
    counting.on(primes::below, pool, [](rc::pool_context&, std::uint32_t limit) -> rc::task<std::uint32_t> {
        co_return count_primes(limit);
    });
    rc::node<rc::shm> there(2), here(1);
    rc::node_calls served(there), peers(here);
    served.serve(counting);
    here.add({.id = 2, .urls = {"shm://worker-pool"}});
    std::uint64_t heard = 0;
    rc::task_group serving;
    serving.spawn(serve, std::ref(there), std::ref(heard));
    std::atomic<std::uint64_t> sum = 0;
    std::exception_ptr failure;  // of the last thread that had one
    {
        rc::gate gate(peers);  // ends before the node does
        std::uint32_t running = 0;
        rc::event ended;
        std::vector<std::jthread> workers;
        try {
            for (std::uint32_t number = 1; number <= threads; ++number) {
                workers.emplace_back([&, number, pass = gate.pass()]() mutable {
                    mine.post([&, why = work(std::move(pass), number, sum)] {
                        if (why) failure = why;
                        if (--running == 0) ended.set();
                    });
                });
                ++running;
            }
        } catch (...) {
            failure = std::current_exception();  // there is no thread, or memory, left for one more
        }
        // This thread is the network's and never blocks: the answers that they wait for come by it, so that it may join them only now.
        if (running != 0) co_await ended.wait();
    }
    co_await here.close();
    co_await serving.join();
    co_await there.close();
    if (failure) std::rethrow_exception(failure);
    std::cout << threads << " threads heard of " << sum << " primes and sent " << heard << " messages\n";
}

int main() try {
    rc::scheduler scheduler;
    scheduler.run(run(scheduler));
} catch (const std::exception& failed) {
    std::cerr << "worker_pool: " << failed.what() << '\n';
    return 1;
}
