// peer_mpi: the same three figures as `pingpong --test latency|rate|bandwidth`, over whatever MPI it is built with.
//
// Run with two processes, bound to two cores: see bench/README.md. Prints one line for each test and size.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int window = 64;

double median(std::vector<double> samples) {
    std::nth_element(samples.begin(), samples.begin() + static_cast<long>(samples.size() / 2), samples.end());
    return samples[samples.size() / 2];
}

/// Half round trips in nanoseconds.
double latency(int rank, std::vector<char>& buffer, int bytes, int iterations) {
    std::vector<double> samples;
    for (int i = 0; i < iterations; ++i) {
        const double begin = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(buffer.data(), bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD);
            MPI_Recv(buffer.data(), bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer.data(), bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer.data(), bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD);
        }
        if (i >= iterations / 10) samples.push_back((MPI_Wtime() - begin) / 2 * 1e9);
    }
    return median(std::move(samples));
}

/// Messages a second with `window` outstanding.
double rate(int rank, std::vector<char>& buffer, int bytes, int windows) {
    std::vector<MPI_Request> requests(window);
    char ack = 0;
    double begin = 0;
    for (int w = -windows / 10; w < windows; ++w) {
        if (w == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        for (int i = 0; i < window; ++i) {
            char* slot = buffer.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(bytes);
            if (rank == 0) {
                MPI_Isend(slot, bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD,
                          &requests[static_cast<std::size_t>(i)]);
            } else {
                MPI_Irecv(slot, bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD,
                          &requests[static_cast<std::size_t>(i)]);
            }
        }
        MPI_Waitall(window, requests.data(), MPI_STATUSES_IGNORE);
    }
    if (rank == 0) {
        MPI_Recv(&ack, 1, MPI_CHAR, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(&ack, 1, MPI_CHAR, 0, 8, MPI_COMM_WORLD);
    }
    return static_cast<double>(windows) * window / (MPI_Wtime() - begin);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        if (rank == 0) std::fprintf(stderr, "peer_mpi: run with two processes: mpirun -n 2 peer_mpi\n");
        MPI_Finalize();
        return 2;
    }
    std::vector<char> buffer(std::size_t{window} << 20);
    const double small = latency(rank, buffer, 8, 50000);
    const double messages = rate(rank, buffer, 8, 20000);
    const double large = rate(rank, buffer, 1 << 20, 60);
    if (rank == 0) {
        std::printf("latency 8 B: %.0f ns\nrate 8 B: %.2f M msg/s\nbandwidth 1 MB: %.2f GB/s\n", small,
                    messages / 1e6, large * (1 << 20) / 1e9);
    }
    MPI_Finalize();
}
