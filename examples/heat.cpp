// Heat spreads over a plate that is cut into strips, one for each rank of a job; a picture of the end goes into a file.
// rdmacoro-run -n 4 heat [FILE [POINTS]], or with mpiexec, mpirun, srun. Without a launcher: one rank.
#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
using node = rdmacoro::node<rdmacoro::shm, rdmacoro::tcp>;
#else
using node = rdmacoro::node<rdmacoro::shm>;
#endif
#include "picture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace rc = rdmacoro;

/// The rows of one rank, and one more at both ends that belong to its neighbours.
struct strip {
    std::size_t width;
    std::size_t rows;
    std::vector<float> points = std::vector<float>(width * (rows + 2));

    std::span<float> row(std::size_t which) { return {points.data() + which * width, width}; }
};

/// Gives the neighbour above (`up`) or below the row at that edge, and gets that of the neighbour.
rc::task<> swap_edges(node::peer_type with, strip& plate, bool up) {
    auto coming = rc::start(with.recv(plate.row(up ? 0 : plate.rows + 1), up ? 1 : 2));
    co_await with.send(plate.row(up ? 1 : plate.rows), up ? 2 : 1);
    co_await coming;
}

/// One step; answers the largest change of a point.
float spread(strip& from, strip& to) {
    float most = 0;
    for (std::size_t y = 1; y <= from.rows; ++y) {
        for (std::size_t x = 1; x + 1 < from.width; ++x) {
            const float now =
                (from.row(y - 1)[x] + from.row(y + 1)[x] + from.row(y)[x - 1] + from.row(y)[x + 1]) / 4;
            most = std::max(most, std::abs(now - from.row(y)[x]));
            to.row(y)[x] = now;
        }
    }
    return most;
}

rc::task<> heat_up(node& here, const rc::job& job, rc::group all, std::string file, std::size_t points) {
    const unsigned rank = all.rank();
    std::vector<std::size_t> rows(all.size());
    for (unsigned r = 0; r < all.size(); ++r)
        rows[r] = (r + 1) * points / all.size() - r * points / all.size();
    strip now{points, rows[rank]};
    if (rank == 0) std::fill_n(now.row(0).begin(), points, 255.0f);  // the upper edge is hot
    strip next = now;
    std::size_t steps = 0;
    for (float change = 1; change > 0.05f; ++steps) {
        rc::task_group edges;
        if (rank > 0) edges.spawn(swap_edges, here.peer(job.node_of(rank - 1)), std::ref(now), true);
        if (rank + 1 < all.size())
            edges.spawn(swap_edges, here.peer(job.node_of(rank + 1)), std::ref(now), false);
        co_await edges.join();
        change = spread(now, next);
        std::swap(now.points, next.points);
        co_await all.allreduce(rc::in_place, std::span(&change, 1), rc::maximum{});
    }
    std::vector<std::size_t> counts = rows;
    for (std::size_t& one : counts) one *= points;
    std::vector<float> plate(rank == 0 ? points * points : 0);
    co_await all.gatherv(std::span<const float>(now.row(1).data(), counts[rank]), plate, counts, rc::root{0});
    if (rank == 0) {
        write_picture(file, points, plate);
        std::printf("%zu steps with %u ranks; the picture is %s\n", steps, all.size(), file.c_str());
    }
}

rc::task<> work(std::string file, std::size_t points) {
    node here(rc::job_node_id());
    rc::job job = co_await rc::join_job(here, {.alone = true});
    // A rank for each row at most; the others have nothing to do.
    const rc::group all = co_await job.world().split(job.rank() < points ? 0 : rc::no_color);
    if (all) co_await heat_up(here, job, all, file, points);
    co_await job.leave();
    co_await here.close();
}

int main(int argc, char** argv) try {
    const std::string file = argc > 1 ? argv[1] : "heat.pgm";
    const std::size_t points = argc > 2 ? edge_of_picture(argv[2]) : 200;
    if (!file.starts_with('-')) return rc::scheduler{}.run(work(file, points)), 0;
    std::puts("usage: heat [FILE [POINTS]]; POINTS of each edge, 1 to 20000");
    return file == "--help" ? 0 : 2;
} catch (const std::exception& failed) {
    return std::fprintf(stderr, "heat: %s\n", failed.what()), 1;
}
