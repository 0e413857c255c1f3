// The algorithms of collectives: one coroutine each, on bytes, compiled once for all transports and element types.
//
// Belongs here: how the ranks' messages follow each other. Does not belong here: which algorithm is chosen (service/collectives.hpp), what
// a user calls (service/group.hpp).
//
// Sources. Trees, ring ("bucket") and bidirectional exchange: the table of F-MPJ's primitives in Taboada's thesis (2009), after van de Geijn's
// building blocks; there the ring forwards a block before it has arrived, and the exchange sends first on both sides: corrected here, as every step begins its
// receive and its send together and awaits both. Dissemination barrier: Hensgen, Finkel and Manber (1988). Recursive doubling and halving for any
// number of ranks, and the allreduce of halving and doubling: Rabenseifner (2004); Thakur, Rabenseifner and Gropp (2005). Alltoall by the bits of the distance: Bruck et
// al. (1997). Scan in log steps: Hillis and Steele (1986).
#pragma once

#include <rdmacoro/service/collective.hpp>

namespace rdmacoro::detail {

/// One rank's part in an algorithm that is a step of another.
using step_algorithm = task<> (*)(collective& c);

// Barriers.
task<> dissemination_barrier(collective& c);
task<> tree_barrier(collective& c);
task<> gather_broadcast_barrier(collective& c, step_algorithm gather, step_algorithm broadcast);

// From one to all.
task<> flat_broadcast(collective& c);
task<> overlapped_flat_broadcast(collective& c);
task<> binomial_broadcast(collective& c);
task<> spanning_tree_broadcast(collective& c);
task<> four_ary_broadcast(collective& c);
task<> scatter_allgather_broadcast(collective& c);
task<> chain_broadcast(collective& c);
task<> flat_scatter(collective& c);
task<> overlapped_flat_scatter(collective& c);
task<> spanning_tree_scatter(collective& c);

// From all to one.
task<> flat_gather(collective& c);
task<> overlapped_flat_gather(collective& c);
task<> spanning_tree_gather(collective& c);
task<> flat_reduce(collective& c);
task<> binomial_reduce(collective& c);
task<> spanning_tree_reduce(collective& c);
task<> ring_reduce(collective& c);

// From all to all.
task<> ring_allgather(collective& c);
task<> double_ring_allgather(collective& c);
task<> doubling_allgather(collective& c);
task<> bruck_allgather(collective& c);
task<> gather_broadcast_allgather(collective& c, step_algorithm gather, step_algorithm broadcast);
task<> overlapped_flat_allgather(collective& c);
task<> overlapped_flat_alltoall(collective& c);
task<> pairwise_alltoall(collective& c);
task<> bruck_alltoall(collective& c);
task<> doubling_allreduce(collective& c);
task<> rabenseifner_allreduce(collective& c);
task<> ring_allreduce(collective& c);
task<> pipelined_ring_allreduce(collective& c);
task<> ring_by_host_allreduce(collective& c);
task<> reduce_broadcast_allreduce(collective& c, step_algorithm reduce, step_algorithm broadcast);
task<> ring_reduce_scatter(collective& c);
task<> halving_reduce_scatter(collective& c);
task<> pairwise_reduce_scatter(collective& c);
task<> reduce_then_scatter(collective& c, step_algorithm reduce, step_algorithm scatter);
task<> in_parts(collective& c, step_algorithm first, step_algorithm second);

// Prefixes.
task<> log_step_scan(collective& c);
task<> chain_scan(collective& c);
task<> flat_scan(collective& c);
task<> overlapped_flat_scan(collective& c);

// Shared memory within a host, the network between the first ranks of the hosts.
task<> hierarchical_barrier(collective& c);
task<> hierarchical_broadcast(collective& c);
task<> hierarchical_reduce(collective& c);
task<> hierarchical_allreduce(collective& c);
task<> hierarchical_gather(collective& c);
task<> hierarchical_scatter(collective& c);
task<> hierarchical_allgather(collective& c);
task<> hierarchical_alltoall(collective& c);
task<> hierarchical_reduce_scatter(collective& c);
task<> hierarchical_scan(collective& c);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/algorithms_all_to_all.ipp>
#include <rdmacoro/service/detail/impl/algorithms_by_host.ipp>
#include <rdmacoro/service/detail/impl/algorithms_from_one.ipp>
#include <rdmacoro/service/detail/impl/algorithms_reduce.ipp>
#include <rdmacoro/service/detail/impl/algorithms_reduce_scatter.ipp>
#include <rdmacoro/service/detail/impl/algorithms_scans.ipp>
#include <rdmacoro/service/detail/impl/algorithms_to_one.ipp>
#endif
