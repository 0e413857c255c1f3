// The random programs of twins.hpp with the toolkit's collectives, and the comparison of what two such programs left.

#include "twins.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>

namespace rc = rdmacoro;

namespace {

#if RDMACORO_WITH_TCP
using node = rc::node<rc::shm, rc::tcp>;
#else
using node = rc::node<rc::shm>;
#endif

struct product {
    twins::matrix operator()(const twins::matrix& a, const twins::matrix& b) const {
        return twins::times(a, b);
    }
};

template <class T>
std::vector<T> part_of(const std::vector<T>& all, std::size_t first, std::size_t count) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

template <class T, class Op>
rc::task<> reduces(rc::group g, twins::step of, Op by, twins::results& into) {
    using twins::kind;
    const unsigned size = g.size();
    const unsigned rank = g.rank();
    const rc::root at(static_cast<unsigned>(of.root % size));
    std::vector<std::size_t> counts;
    for (unsigned other = 0; other < size; ++other) counts.push_back(of.block(other));
    const bool scatters = of.what == kind::reduce_scatter;
    const std::vector<T> mine = twins::given<T>(of, rank, scatters ? of.offset(size) : of.count);
    std::vector<T> x(scatters ? of.block(rank) : of.count);
    if (of.in_place) x = mine;
    const std::size_t first = of.offset(rank);
    switch (of.what) {
        case kind::reduce:
            if (of.in_place) {
                co_await g.reduce(rc::in_place, x, by, at);
            } else {
                co_await g.reduce(mine, x, by, at);
            }
            if (rank != at.rank) x.clear();
            break;
        case kind::allreduce:
            if (of.in_place) {
                co_await g.allreduce(rc::in_place, x, by);
            } else {
                co_await g.allreduce(mine, x, by);
            }
            break;
        case kind::reduce_scatter:
            if (of.in_place && of.uneven) {
                co_await g.reduce_scatterv(rc::in_place, x, counts, by);
            } else if (of.in_place) {
                co_await g.reduce_scatter(rc::in_place, x, by);
            } else if (of.uneven) {
                co_await g.reduce_scatterv(mine, counts, x, by);
            } else {
                co_await g.reduce_scatter(mine, x, by);
            }
            if (of.in_place) x = part_of(x, first, of.block(rank));
            break;
        case kind::scan:
            if (of.in_place) {
                co_await g.scan(rc::in_place, x, by);
            } else {
                co_await g.scan(mine, x, by);
            }
            break;
        default:
            if (of.in_place) {
                co_await g.exscan(rc::in_place, x, by);
            } else {
                co_await g.exscan(mine, x, by);
            }
            if (rank == 0) x.clear();
    }
    into.add(x);
}

template <class T>
rc::task<> moves(rc::group g, twins::step of, twins::results& into) {
    using twins::kind;
    const unsigned size = g.size();
    const unsigned rank = g.rank();
    const rc::root at(static_cast<unsigned>(of.root % size));
    const std::size_t total = of.offset(size);
    const std::size_t first = of.offset(rank);
    std::vector<std::size_t> counts;
    for (unsigned other = 0; other < size; ++other) counts.push_back(of.block(other));
    std::vector<T> x;
    switch (of.what) {
        case kind::broadcast:
            x = rank == at.rank ? twins::given<T>(of, rank, of.count) : std::vector<T>(of.count);
            co_await g.broadcast(x, at);
            break;
        case kind::scatter: {
            const std::vector<T> all = rank == at.rank ? twins::given<T>(of, rank, total) : std::vector<T>();
            x.resize(of.block(rank));
            if (of.in_place) {
                if (rank == at.rank) x = all;
                if (of.uneven) {
                    co_await g.scatterv(rc::in_place, x, counts, at);
                } else {
                    co_await g.scatter(rc::in_place, x, at);
                }
                if (rank == at.rank) x = part_of(x, first, of.block(rank));
            } else if (of.uneven) {
                co_await g.scatterv(all, counts, x, at);
            } else {
                co_await g.scatter(all, x, at);
            }
            break;
        }
        case kind::gather: {
            const std::vector<T> mine = twins::given<T>(of, rank, of.block(rank));
            if (rank == at.rank) x.resize(total);
            if (of.in_place) {
                if (rank == at.rank) {
                    std::copy(mine.begin(), mine.end(), x.begin() + static_cast<std::ptrdiff_t>(first));
                } else {
                    x = mine;
                }
                if (of.uneven) {
                    co_await g.gatherv(rc::in_place, x, counts, at);
                } else {
                    co_await g.gather(rc::in_place, x, at);
                }
                if (rank != at.rank) x.clear();
            } else if (of.uneven) {
                co_await g.gatherv(mine, x, counts, at);
            } else {
                co_await g.gather(mine, x, at);
            }
            break;
        }
        case kind::allgather: {
            const std::vector<T> mine = twins::given<T>(of, rank, of.block(rank));
            x.resize(total);
            if (of.in_place) {
                std::copy(mine.begin(), mine.end(), x.begin() + static_cast<std::ptrdiff_t>(first));
                if (of.uneven) {
                    co_await g.allgatherv(rc::in_place, x, counts);
                } else {
                    co_await g.allgather(rc::in_place, x);
                }
            } else if (of.uneven) {
                co_await g.allgatherv(mine, x, counts);
            } else {
                co_await g.allgather(mine, x);
            }
            break;
        }
        case kind::alltoall: {
            // Between two ranks as many as their numbers' sum says.
            std::vector<std::size_t> both;
            std::size_t all = 0;
            for (unsigned other = 0; other < size; ++other) {
                both.push_back(of.block((rank + other) % size));
                all += both.back();
            }
            const std::vector<T> mine = twins::given<T>(of, rank, all);
            x.resize(all);
            if (of.in_place) {
                x = mine;
                if (of.uneven) {
                    co_await g.alltoallv(rc::in_place, x, both);
                } else {
                    co_await g.alltoall(rc::in_place, x);
                }
            } else if (of.uneven) {
                co_await g.alltoallv(mine, both, x, both);
            } else {
                co_await g.alltoall(mine, x);
            }
            break;
        }
        default: co_await g.barrier();
    }
    into.add(x);
}

rc::task<> one_step(const rc::group& g, const twins::step& of, twins::results& into) {
    rc::task<> part;
    twins::with_type(of.of, [&](auto zero) {
        using T = decltype(zero);
        if (!of.reduces()) {
            part = moves<T>(g, of, into);
        } else if constexpr (std::is_same_v<T, twins::matrix>) {
            part = reduces<T>(g, of, product{}, into);
        } else {
            switch (of.by) {
                case twins::op::least: part = reduces<T>(g, of, rc::minimum{}, into); break;
                case twins::op::most: part = reduces<T>(g, of, rc::maximum{}, into); break;
                case twins::op::exclusive_or:
                    if constexpr (std::is_integral_v<T>) part = reduces<T>(g, of, std::bit_xor<>{}, into);
                    break;
                default: part = reduces<T>(g, of, std::plus<>{}, into);
            }
        }
    });
    return part;
}

rc::task<> run(const twins::options& asked) {
    node here(rc::job_node_id());
    rc::job ranks = co_await rc::join_job(here);
    const rc::group world = ranks.world();
    const rc::group part = co_await world.split(ranks.rank() % 2, -static_cast<std::int64_t>(ranks.rank()));
    twins::results all;
    for (const twins::step& of : twins::program(asked.seed, asked.steps)) {
        rc::task<> now = one_step(of.of_part ? part : world, of, all);
        co_await rc::timeout(std::move(now), std::chrono::seconds(30));
    }
    all.write(asked.path(asked.out, ranks.rank()));
    co_await ranks.leave();
}

/// How far the sums of two orders may lie apart, element by element: each of n - 1 additions errs by half a unit in the last place of at most the sum
/// of the magnitudes. Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2.
template <class T>
std::vector<double> bounds(const twins::step& of, unsigned rank, unsigned size, std::size_t count) {
    const bool prefix = of.what == twins::kind::scan || of.what == twins::kind::exscan;
    const unsigned last = !prefix ? size : of.what == twins::kind::scan ? rank + 1 : rank;
    const bool scatters = of.what == twins::kind::reduce_scatter;
    std::vector<double> most(count);
    for (unsigned other = 0; other < last; ++other) {
        const std::vector<T> row = twins::given<T>(of, other, scatters ? of.offset(size) : of.count);
        for (std::size_t at = 0; at < count; ++at)
            most[at] += std::abs(row[at + (scatters ? of.offset(rank) : 0)]);
    }
    const double unit =
        last < 2 ? 0 : (last - 1) * static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
    for (double& one : most) one *= 2 * unit / (1 - unit);
    return most;
}

template <class T>
bool are_near(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
              const std::vector<double>& most) {
    for (std::size_t at = 0; at < most.size(); ++at) {
        T x{};
        T y{};
        std::memcpy(&x, a.data() + at * sizeof(T), sizeof(T));
        std::memcpy(&y, b.data() + at * sizeof(T), sizeof(T));
        if (!(std::abs(static_cast<double>(x) - static_cast<double>(y)) <= most[at])) return false;
    }
    return true;
}

int compare(const twins::options& asked) {
    const std::vector<twins::step> program = twins::program(asked.seed, asked.steps);
    std::size_t rows = 0;
    std::size_t rounded = 0;
    int wrong = 0;
    for (unsigned rank = 0; rank < asked.ranks; ++rank) {
        const auto a = twins::results::read(asked.path(asked.out, rank));
        const auto b = twins::results::read(asked.path(asked.other, rank));
        if (a.size() != program.size() || b.size() != program.size()) {
            std::printf("rank %u has %zu and %zu results of %zu\n", rank, a.size(), b.size(), program.size());
            return 1;
        }
        for (std::size_t at = 0; at < program.size(); ++at) {
            const twins::step& of = program[at];
            ++rows;
            bool good = a[at] == b[at];
            const bool rounds = of.reduces() && of.by == twins::op::sum && a[at].size() == b[at].size();
            if (!good && rounds && (of.of == twins::type::f32 || of.of == twins::type::f64)) {
                // Of the part: ranks that are even, or odd, in falling order.
                const unsigned size = !of.of_part ? asked.ranks : (asked.ranks + 1 - rank % 2) / 2;
                const unsigned there = !of.of_part ? rank : size - 1 - rank / 2;
                ++rounded;
                good =
                    of.of == twins::type::f32
                        ? are_near<float>(a[at], b[at], bounds<float>(of, there, size, a[at].size() / 4))
                        : are_near<double>(a[at], b[at], bounds<double>(of, there, size, a[at].size() / 8));
            }
            if (good) continue;
            ++wrong;
            std::printf(
                "rank %u of %u, step %zu: kind %d, type %d, operation %d, %zu elements, root %zu%s%s%s: "
                "%zu and %zu bytes differ\n",
                rank, asked.ranks, at, static_cast<int>(of.what), static_cast<int>(of.of),
                static_cast<int>(of.by), of.count, of.root, of.uneven ? ", uneven" : "",
                of.in_place ? ", in place" : "", of.of_part ? ", of a part" : "", a[at].size(), b[at].size());
        }
    }
    std::printf("%zu results of %u ranks, %zu rounded differently, %d wrong\n", rows, asked.ranks, rounded,
                wrong);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const twins::options asked(argc, argv);
    if (asked.compares) return compare(asked);
    try {
        rc::scheduler{}.run(run(asked));
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "twins: %s\n", failed.what());
        return 1;
    }
    return 0;
}
