// The dot product of two vectors of which each rank of a job has a part: rdmacoro-run -n 4 dot_product
#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/transport/shm.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

namespace rc = rdmacoro;

rc::task<> work() {
    rc::node<rc::shm> here(rc::job_node_id());
    rc::job job = co_await rc::join_job(here, {.alone = true});
    const std::vector<double> a(1000, job.rank() + 1.0);  // this rank's parts
    const std::vector<double> b(1000, 2.0);
    std::vector<double> sum{std::inner_product(a.begin(), a.end(), b.begin(), 0.0)};
    co_await job.world().allreduce(rc::in_place, sum, std::plus<>{});
    if (job.rank() == 0) std::printf("%.0f\n", sum[0]);
    co_await job.leave();
}

int main() { rc::scheduler{}.run(work()); }
