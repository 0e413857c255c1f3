// The random programs of twins.hpp with the MPI that it is compiled with: twins.sh does that.

#include <mpi.h>

#include "twins.hpp"

namespace {

MPI_Datatype matrices;
MPI_Op products;

void multiply(void* in, void* inout, int* count, MPI_Datatype*) {
    const auto* const a = static_cast<const twins::matrix*>(in);
    auto* const b = static_cast<twins::matrix*>(inout);
    for (int at = 0; at < *count; ++at) b[at] = twins::times(a[at], b[at]);
}

template <class T>
MPI_Datatype type_of() {
    if constexpr (std::is_same_v<T, std::uint8_t>) return MPI_UINT8_T;
    if constexpr (std::is_same_v<T, std::uint32_t>) return MPI_UINT32_T;
    if constexpr (std::is_same_v<T, std::uint64_t>) return MPI_UINT64_T;
    if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
    if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
    if constexpr (std::is_same_v<T, twins::matrix>) return matrices;
}

MPI_Op op_of(twins::op by) {
    switch (by) {
        case twins::op::sum: return MPI_SUM;
        case twins::op::least: return MPI_MIN;
        case twins::op::most: return MPI_MAX;
        case twins::op::exclusive_or: return MPI_BXOR;
        case twins::op::product: return products;
    }
    return MPI_OP_NULL;
}

template <class T>
void one_step(MPI_Comm g, const twins::step& of, twins::results& into) {
    using twins::kind;
    int size = 0;
    int rank = 0;
    MPI_Comm_size(g, &size);
    MPI_Comm_rank(g, &rank);
    const auto me = static_cast<std::size_t>(rank);
    const auto ranks = static_cast<std::size_t>(size);
    const MPI_Datatype type = type_of<T>();
    const MPI_Op by = op_of(of.by);
    const int root = static_cast<int>(of.root % ranks);
    const int count = static_cast<int>(of.count);
    std::vector<int> counts, offsets, both, both_offsets;
    int all = 0;
    for (std::size_t other = 0; other < ranks; ++other) {
        counts.push_back(static_cast<int>(of.block(other)));
        offsets.push_back(static_cast<int>(of.offset(other)));
        both.push_back(static_cast<int>(of.block((me + other) % ranks)));
        both_offsets.push_back(all);
        all += both.back();
    }
    const std::size_t total = of.offset(ranks);
    std::vector<T> x;
    x.reserve(1);
    switch (of.what) {
        case kind::barrier: MPI_Barrier(g); break;
        case kind::broadcast:
            x = rank == root ? twins::given<T>(of, me, of.count) : std::vector<T>(of.count);
            MPI_Bcast(x.data(), count, type, root, g);
            break;
        case kind::scatter: {
            const std::vector<T> from = rank == root ? twins::given<T>(of, me, total) : std::vector<T>();
            x.resize(of.block(me));
            MPI_Scatterv(from.data(), counts.data(), offsets.data(), type, x.data(), counts[me], type, root,
                         g);
            break;
        }
        case kind::gather: {
            const std::vector<T> mine = twins::given<T>(of, me, of.block(me));
            if (rank == root) x.resize(total);
            MPI_Gatherv(mine.data(), counts[me], type, x.data(), counts.data(), offsets.data(), type, root,
                        g);
            break;
        }
        case kind::allgather: {
            const std::vector<T> mine = twins::given<T>(of, me, of.block(me));
            x.resize(total);
            MPI_Allgatherv(mine.data(), counts[me], type, x.data(), counts.data(), offsets.data(), type, g);
            break;
        }
        case kind::alltoall: {
            const std::vector<T> mine = twins::given<T>(of, me, static_cast<std::size_t>(all));
            x.resize(mine.size());
            MPI_Alltoallv(mine.data(), both.data(), both_offsets.data(), type, x.data(), both.data(),
                          both_offsets.data(), type, g);
            break;
        }
        default: {
            const bool scatters = of.what == kind::reduce_scatter;
            const std::vector<T> mine = twins::given<T>(of, me, scatters ? total : of.count);
            x.resize(scatters ? of.block(me) : of.count);
            if (of.what == kind::reduce) {
                MPI_Reduce(mine.data(), x.data(), count, type, by, root, g);
                if (rank != root) x.clear();
            } else if (of.what == kind::allreduce) {
                MPI_Allreduce(mine.data(), x.data(), count, type, by, g);
            } else if (scatters) {
                MPI_Reduce_scatter(mine.data(), x.data(), counts.data(), type, by, g);
            } else if (of.what == kind::scan) {
                MPI_Scan(mine.data(), x.data(), count, type, by, g);
            } else {
                MPI_Exscan(mine.data(), x.data(), count, type, by, g);
                if (rank == 0) x.clear();
            }
        }
    }
    into.add(x);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const twins::options asked(argc, argv);
    MPI_Type_contiguous(4, MPI_UINT32_T, &matrices);
    MPI_Type_commit(&matrices);
    MPI_Op_create(&multiply, 0, &products);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
    twins::results all;
    for (const twins::step& of : twins::program(asked.seed, asked.steps)) {
        twins::with_type(
            of.of, [&](auto zero) { one_step<decltype(zero)>(of.of_part ? part : MPI_COMM_WORLD, of, all); });
    }
    all.write(asked.path(asked.out, static_cast<unsigned>(rank)));
    MPI_Comm_free(&part);
    MPI_Op_free(&products);
    MPI_Type_free(&matrices);
    MPI_Finalize();
    return 0;
}
