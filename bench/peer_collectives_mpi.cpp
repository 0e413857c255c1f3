// peer_collectives_mpi: the loops of bench/collectives over whatever MPI it is built with.
//
// Started by that program: --peer openmpi="mpirun -n {ranks} --bind-to core peer_collectives_mpi". Prints "ranks N", then lines of
// "operation bytes least middle most", in nanoseconds, one for each round.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

int rank = 0;
int size = 1;

std::vector<std::string> split_list(const std::string& list) {
    std::vector<std::string> parts;
    std::istringstream from(list);
    for (std::string one; std::getline(from, one, ',');) parts.push_back(one);
    return parts;
}

/// Of sorted values; as in bench/collectives, the mean of the two in the middle where their number is even.
double middle_of(const std::vector<double>& sorted) {
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 != 0 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/// The buffers of one operation, as in bench/collectives.
struct workload {
    explicit workload(std::size_t bytes)
        : in(std::max<std::size_t>(1, bytes / 8)),
          out(in.size()),
          block(std::max<std::size_t>(1, in.size() / static_cast<std::size_t>(size))),
          wide(block * static_cast<std::size_t>(size)),
          wider(wide.size()),
          sent(bytes),
          got(bytes) {
        // As in bench/collectives: of one length and half of it more or less, in turn.
        int at = 0;
        int crossing = 0;
        for (int other = 0; other < size; ++other) {
            counts.push_back(uneven(other));
            offsets.push_back(at);
            at += counts.back();
            between.push_back(uneven(rank + other));
            between_offsets.push_back(crossing);
            crossing += between.back();
        }
        const auto most = static_cast<std::size_t>(at + crossing);
        if (wide.size() < most) wide.resize(most);
        if (wider.size() < most) wider.resize(most);
        const auto own = static_cast<std::size_t>(uneven(0));
        if (out.size() < own) out.resize(own);
    }
    int uneven(int of) const {
        const int each = static_cast<int>(block);
        return of % 2 == 0 ? each + each / 2 : each - each / 2;
    }

    /// As in bench/collectives: a word of each cache line of what this rank gives.
    void write_anew(const std::string& what) {
        const auto begins = [&what](const char* with) { return what.rfind(with, 0) == 0; };
        if (what == "exchange") {
            for (std::size_t at = 0; at < sent.size(); at += 64) ++sent[at];
            return;
        }
        const bool of_out = what == "broadcast" || begins("gather") || begins("allgather");
        const bool of_wide = begins("scatter") || begins("reduce_scatter") || begins("alltoall");
        std::vector<double>& given = of_out ? out : of_wide ? wide : in;
        for (std::size_t at = 0; at < given.size(); at += 8) given[at] += 1;
    }
    void loop(const std::string& what, long times, bool fresh) {
        for (long n = 0; n < times; ++n) {
            if (fresh) write_anew(what);
            once(what);
        }
    }
    bool once(const std::string& what) {
        const int count = static_cast<int>(in.size());
        const int part = static_cast<int>(block);
        const int mine = counts[static_cast<std::size_t>(rank)];
        MPI_Comm world = MPI_COMM_WORLD;
        if (what == "barrier") {
            MPI_Barrier(world);
        } else if (what == "broadcast") {
            MPI_Bcast(out.data(), count, MPI_DOUBLE, 0, world);
        } else if (what == "allreduce") {
            MPI_Allreduce(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, world);
        } else if (what == "started") {
            MPI_Request request;
            MPI_Iallreduce(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, world, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (what == "reduce") {
            MPI_Reduce(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, 0, world);
        } else if (what == "scan") {
            MPI_Scan(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, world);
        } else if (what == "exscan") {
            MPI_Exscan(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, world);
        } else if (what == "scatter") {
            MPI_Scatter(wide.data(), part, MPI_DOUBLE, out.data(), part, MPI_DOUBLE, 0, world);
        } else if (what == "scatterv") {
            MPI_Scatterv(wide.data(), counts.data(), offsets.data(), MPI_DOUBLE, out.data(), mine, MPI_DOUBLE,
                         0, world);
        } else if (what == "gatherv") {
            MPI_Gatherv(out.data(), mine, MPI_DOUBLE, wide.data(), counts.data(), offsets.data(), MPI_DOUBLE,
                        0, world);
        } else if (what == "allgatherv") {
            MPI_Allgatherv(out.data(), mine, MPI_DOUBLE, wide.data(), counts.data(), offsets.data(),
                           MPI_DOUBLE, world);
        } else if (what == "reduce_scatterv") {
            MPI_Reduce_scatter(wide.data(), out.data(), counts.data(), MPI_DOUBLE, MPI_SUM, world);
        } else if (what == "alltoallv") {
            MPI_Alltoallv(wide.data(), between.data(), between_offsets.data(), MPI_DOUBLE, wider.data(),
                          between.data(), between_offsets.data(), MPI_DOUBLE, world);
        } else if (what == "gather") {
            MPI_Gather(out.data(), part, MPI_DOUBLE, wide.data(), part, MPI_DOUBLE, 0, world);
        } else if (what == "allgather") {
            MPI_Allgather(out.data(), part, MPI_DOUBLE, wide.data(), part, MPI_DOUBLE, world);
        } else if (what == "reduce_scatter") {
            MPI_Reduce_scatter_block(wide.data(), out.data(), part, MPI_DOUBLE, MPI_SUM, world);
        } else if (what == "alltoall") {
            MPI_Alltoall(wide.data(), part, MPI_DOUBLE, wider.data(), part, MPI_DOUBLE, world);
        } else if (what == "exchange") {
            if (size != 2) return false;
            MPI_Request requests[2];
            const int bytes = static_cast<int>(sent.size());
            MPI_Irecv(got.data(), bytes, MPI_CHAR, 1 - rank, 7, world, &requests[0]);
            MPI_Isend(sent.data(), bytes, MPI_CHAR, 1 - rank, 7, world, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        } else {
            return false;
        }
        return true;
    }

    std::vector<double> in;
    std::vector<double> out;
    std::size_t block;
    std::vector<double> wide;
    std::vector<double> wider;
    std::vector<char> sent;
    std::vector<char> got;
    std::vector<int> counts, offsets, between, between_offsets;
};

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::map<std::string, std::string> given{
        {"--op", "allreduce"}, {"--sizes", "8"}, {"--rounds", "9"}, {"--seconds", "0.02"}, {"--fresh", "0"}};
    for (int at = 1; at + 1 < argc; at += 2) {
        if (given.count(argv[at]) == 0) {
            if (rank == 0) std::fprintf(stderr, "peer_collectives_mpi: no option %s\n", argv[at]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        given[argv[at]] = argv[at + 1];
    }
    if (rank == 0) std::printf("ranks %d\n", size);
    const bool fresh = given["--fresh"] == "1";
    const int rounds = std::atoi(given["--rounds"].c_str());
    const double seconds = std::atof(given["--seconds"].c_str());
    const std::vector<std::string> sizes = split_list(given["--sizes"]);
    std::map<std::string, long> counts;
    for (int round = 0; round <= rounds; ++round) {
        for (const std::string& what : split_list(given["--op"])) {
            for (const std::string& text : sizes) {
                if (what == "barrier" && text != sizes.front()) continue;
                workload work(std::stoul(text));
                if (!work.once(what)) continue;
                long& count = counts[what + ' ' + text];
                if (round == 0) {
                    for (count = 4;; count *= 4) {
                        MPI_Barrier(MPI_COMM_WORLD);
                        const double begin = MPI_Wtime();
                        work.loop(what, count, fresh);
                        double took = MPI_Wtime() - begin;
                        MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
                        if (took < seconds / 4) continue;
                        count = std::max(1L, static_cast<long>(static_cast<double>(count) * seconds / took));
                        break;
                    }
                    continue;
                }
                MPI_Barrier(MPI_COMM_WORLD);
                const double begin = MPI_Wtime();
                work.loop(what, count, fresh);
                const double took = (MPI_Wtime() - begin) / static_cast<double>(count) * 1e9;
                std::vector<double> all(static_cast<std::size_t>(size));
                MPI_Gather(&took, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
                if (rank != 0) continue;
                std::sort(all.begin(), all.end());
                std::printf("%s %s %.1f %.1f %.1f\n", what.c_str(), text.c_str(), all.front(), middle_of(all),
                            all.back());
            }
        }
    }
    std::fflush(stdout);
    MPI_Finalize();
    return 0;
}
