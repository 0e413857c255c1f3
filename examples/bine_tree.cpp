// A job broadcasts by an algorithm of its own, and compares with the toolkit's: rdmacoro-run -n 8 bine_tree
#include "bine_tree.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/transport/shm.hpp>

#include <chrono>
#include <cstdio>
#include <vector>

namespace rc = rdmacoro;
using mine = rc::collectives<rc::broadcast<bine_tree>>;

/// The time of a broadcast, in microseconds. Throws where it did not bring what the root gave.
rc::task<double> measure(rc::group all) {
    constexpr int times = 200;
    std::vector<int> numbers(1024);
    const auto begin = std::chrono::steady_clock::now();
    for (int n = 0; n < times; ++n) {
        const unsigned root = static_cast<unsigned>(n) % all.size();
        if (all.rank() == root) std::fill(numbers.begin(), numbers.end(), n);
        co_await all.broadcast(numbers, rc::root{root});
        if (numbers.back() != n) throw rc::error(rc::errc::protocol_violation, "a wrong number came");
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    co_return took.count() / times;
}

rc::task<> work() {
    rc::node<rc::shm> here(rc::job_node_id());
    rc::job job = co_await rc::join_job(here, {.alone = true});
    rc::group all = job.world();
    const double usual = co_await measure(all);
    all.use<mine>();
    const double own = co_await measure(all);
    if (all.rank() == 0)
        std::printf("4 KiB to %u ranks: %.1f us by default, %.1f us by %s\n", all.size(), usual, own,
                    mine::choose({rc::collective_kind::broadcast, 4096, 1024, all.size()}) != nullptr
                        ? "the Bine tree"
                        : "default");
    co_await job.leave();
}

int main() { rc::scheduler{}.run(work()); }
