// peer_mpi: the same figures as `pingpong --test latency,rate,bandwidth`, over whatever MPI it is built with.
//
// Run with two processes, bound to two cores: mpirun -n 2 --bind-to core peer_mpi [--buffers N] [BYTES]...; see bench/README.md and
// bench/peers. Prints one line for each size. The messages of a window take turns in N buffers, 1 unless asked otherwise, as in
// pingpong.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int window = 64;

double median(std::vector<double> samples) {
    std::nth_element(samples.begin(), samples.begin() + static_cast<long>(samples.size() / 2), samples.end());
    return samples[samples.size() / 2];
}

/// Half round trips in nanoseconds, at rank 0. Each side sends from one buffer and receives into another, as in pingpong: with one buffer for both
/// each message would be copied over the one that the peer has just read. As there, one side reads the clock, once for each round trip: its end is the next one's begin.
double latency(int rank, std::vector<char>& out, int bytes, int iterations) {
    std::vector<double> samples;
    std::vector<char> in(static_cast<std::size_t>(bytes));
    if (rank != 0) {
        for (int i = 0; i < iterations; ++i) {
            MPI_Recv(in.data(), bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out.data(), bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD);
        }
        return 0;
    }
    samples.reserve(static_cast<std::size_t>(iterations));
    double last = MPI_Wtime();
    for (int i = 0; i < iterations; ++i) {
        MPI_Send(out.data(), bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD);
        MPI_Recv(in.data(), bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const double now = MPI_Wtime();
        if (i >= iterations / 10) samples.push_back((now - last) / 2 * 1e9);
        last = now;
    }
    return median(std::move(samples));
}

/// From one buffer to the next: whole cache lines, as in pingpong.
std::size_t stride_of(int bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; }

/// Messages a second with `window` outstanding, which take turns in `places` buffers.
double rate(int rank, std::vector<char>& buffer, int bytes, int windows, std::size_t places) {
    std::vector<MPI_Request> requests(window);
    char ack = 0;
    double begin = 0;
    for (int w = -windows / 10; w < windows; ++w) {
        if (w == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        for (int i = 0; i < window; ++i) {
            char* slot = buffer.data() + static_cast<std::size_t>(i) % places * stride_of(bytes);
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
    constexpr std::size_t most_memory = std::size_t{256} << 20;
    std::size_t buffers = 1;
    std::vector<int> sizes;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--buffers") == 0 && i + 1 < argc) {
            buffers = static_cast<std::size_t>(std::clamp(std::atoi(argv[++i]), 1, window));
        } else {
            sizes.push_back(std::atoi(argv[i]));
        }
    }
    if (sizes.empty()) sizes = {8, 1 << 20};
    for (const int bytes : sizes) {
        if (bytes <= 0) {
            if (rank == 0) std::fprintf(stderr, "peer_mpi: sizes are numbers of bytes, at least 1\n");
            MPI_Finalize();
            return 2;
        }
        // As many as take some tenths of a second at 10 GB/s or 5 M messages a second.
        const double most = std::min(3e9 / bytes, 1e6);
        const int count = std::max(static_cast<int>(most), 20);
        const std::size_t places = std::clamp<std::size_t>(most_memory / stride_of(bytes), 1, buffers);
        std::vector<char> buffer(places * stride_of(bytes));
        const double one_way = latency(rank, buffer, bytes, std::min(count, 50000));
        const double messages = rate(rank, buffer, bytes, std::max(count / window, 2), places);
        if (rank == 0) {
            std::printf(
                "%d B: latency %.0f ns, rate %.3f M msg/s, bandwidth %.3f GB/s, one at a time %.3f GB/s\n",
                bytes, one_way, messages / 1e6, messages * bytes / 1e9, bytes / one_way);
        }
    }
    MPI_Finalize();
}
