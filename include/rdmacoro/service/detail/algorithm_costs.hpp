// algorithm_costs: what each algorithm of a collective costs, of the costs of a link.
//
// Ranks enter at the same time, each on a processor of its own. A step costs the message, or the exchange, that the rank on the longest way sees;
// ranks on several hosts pay the way between hosts for each step, but in hierarchical algorithms.
#pragma once

#include <rdmacoro/service/algorithm.hpp>
#include <rdmacoro/service/link_costs.hpp>

#include <bit>
#include <cstdint>

namespace rdmacoro::detail {

/// A call of a collective, and the costs of the links that carry it.
struct costed_call {
    double bytes = 0;  // as in collective_shape
    unsigned ranks = 1;
    unsigned hosts = 1;
    const link_costs* within = nullptr;  // of ranks on one host
    const link_costs* between = nullptr;

    [[nodiscard]] constexpr const link_costs& link() const noexcept { return hosts > 1 ? *between : *within; }
    [[nodiscard]] constexpr double message(double of) const noexcept { return link().message.at(of); }
    [[nodiscard]] constexpr double exchange(double of) const noexcept { return link().exchange.at(of); }
    [[nodiscard]] constexpr double next(double of) const noexcept { return link().next.at(of); }
    [[nodiscard]] constexpr double touch(double of) const noexcept { return link().touch_ns_per_byte * of; }
    /// Steps that double the ranks reached.
    [[nodiscard]] constexpr double levels() const noexcept { return std::bit_width(ranks - 1); }
    /// A step of it, of all ranks' blocks.
    [[nodiscard]] constexpr costed_call of_all() const noexcept {
        costed_call all = *this;
        all.bytes *= ranks;
        return all;
    }
    /// Of a part of the elements for each rank.
    [[nodiscard]] constexpr costed_call of_part() const noexcept {
        costed_call part = *this;
        part.bytes /= ranks;
        return part;
    }
    /// The same among some ranks over one link.
    [[nodiscard]] constexpr costed_call among(unsigned some, const link_costs& over) const noexcept {
        return {bytes, some, 1, &over, &over};
    }
};
using cost_function = double (*)(const costed_call& of);

// ---- barriers

constexpr double cost_of_dissemination(const costed_call& of) { return of.levels() * of.exchange(0); }
constexpr double cost_of_tree_barrier(const costed_call& of) { return 2 * of.levels() * of.message(0); }

// ---- from one to all, from all to one

constexpr double cost_of_flat_tree(const costed_call& of) { return (of.ranks - 1) * of.message(of.bytes); }
constexpr double cost_of_overlapped(const costed_call& of) {
    if (of.ranks < 2) return 0;  // one rank of a host, or one host
    return of.message(of.bytes) + (of.ranks - 2) * of.next(of.bytes);
}
constexpr double cost_of_tree(const costed_call& of) { return of.levels() * of.message(of.bytes); }
constexpr double cost_of_four_ary(const costed_call& of) {
    double sum = 0;
    for (std::uint64_t reached = 1; reached < of.ranks; reached *= 4)
        sum += of.message(of.bytes) + 2 * of.next(of.bytes);
    return sum;
}
/// A rank passes half of its blocks on, and so does each of the halves: up or down.
constexpr double cost_of_halves(const costed_call& of) {
    double sum = 0;
    for (unsigned left = of.ranks; left > 1; left -= left / 2) sum += of.message(of.bytes * (left / 2));
    return sum;
}
constexpr double cost_of_ring_of_blocks(const costed_call& of) {
    return (of.ranks - 1) * of.exchange(of.bytes);
}
constexpr double cost_of_scatter_allgather(const costed_call& of) {
    return cost_of_halves(of.of_part()) + cost_of_ring_of_blocks(of.of_part());
}
constexpr double cost_of_chain(const costed_call& of) {
    constexpr double piece = 64 << 10;
    if (of.bytes <= piece) return cost_of_flat_tree(of);
    const double more = (of.bytes - piece) / piece;
    return (of.ranks - 1) * of.message(piece) + more * (of.ranks > 2 ? of.exchange(piece) : of.next(piece));
}

// ---- from all to all

constexpr double cost_of_doubling_blocks(const costed_call& of) {
    double sum = 0;
    for (std::uint64_t have = 1; have < of.ranks; have *= 2) {
        const std::uint64_t gets = have < of.ranks - have ? have : of.ranks - have;
        sum += of.exchange(of.bytes * static_cast<double>(gets));
    }
    return sum;
}
/// Numbers of ranks that are no power of two: some give their block away first, and get all at last.
constexpr double cost_of_doubling_allgather(const costed_call& of) {
    if (std::has_single_bit(of.ranks)) return cost_of_doubling_blocks(of);
    const unsigned power = std::bit_floor(of.ranks);
    double sum = of.message(of.bytes) + of.message(of.bytes * of.ranks);
    for (unsigned have = 1; have < power; have *= 2) sum += of.exchange(of.bytes * have * of.ranks / power);
    return sum;
}
/// Each step is an exchange with both neighbours.
constexpr double cost_of_double_ring(const costed_call& of) {
    return (of.ranks / 2) * of.exchange(of.bytes) + ((of.ranks - 1) / 2) * 2 * of.next(of.bytes);
}
constexpr double cost_of_bruck_allgather(const costed_call& of) {
    return cost_of_doubling_blocks(of) + of.touch(of.bytes * of.ranks);
}
/// Each rank has messages with all others under way: each further one costs a receive and a send.
constexpr double cost_of_all_at_a_time(const costed_call& of) {
    if (of.ranks < 2) return 0;
    return of.exchange(of.bytes) + 2 * (of.ranks - 2) * of.next(of.bytes);
}
constexpr double cost_of_bruck_alltoall(const costed_call& of) {
    const double half = of.bytes * ((of.ranks + 1) / 2);
    return of.levels() * (of.exchange(half) + 2 * of.touch(half)) + 2 * of.touch(of.bytes * of.ranks);
}

// ---- reductions

constexpr double cost_of_flat_reduce(const costed_call& of) {
    return (of.ranks - 1) * (of.message(of.bytes) + of.touch(of.bytes));
}
constexpr double cost_of_tree_reduce(const costed_call& of) {
    return of.levels() * (of.message(of.bytes) + of.touch(of.bytes));
}
/// `bytes`: of one part.
constexpr double cost_of_reduce_around(const costed_call& of) {
    return (of.ranks - 1) * (of.exchange(of.bytes) + of.touch(of.bytes));
}
constexpr double cost_of_ring_reduce(const costed_call& of) {
    return cost_of_reduce_around(of.of_part()) + cost_of_overlapped(of.of_part());
}
constexpr double cost_of_ring_allreduce(const costed_call& of) {
    return cost_of_reduce_around(of.of_part()) + cost_of_ring_of_blocks(of.of_part());
}
/// Numbers of ranks that are no power of two: some give their part away first, and get the result at last.
constexpr double cost_of_folding(const costed_call& of) {
    return std::has_single_bit(of.ranks) ? 0 : 2 * of.message(of.bytes) + of.touch(of.bytes);
}
constexpr double cost_of_doubling_allreduce(const costed_call& of) {
    const double steps = std::bit_width(of.ranks) - 1;
    return cost_of_folding(of) + steps * (of.exchange(of.bytes) + of.touch(of.bytes));
}
constexpr double cost_of_rabenseifner(const costed_call& of) {
    double sum = cost_of_folding(of);
    double part = of.bytes;
    for (unsigned left = std::bit_floor(of.ranks); left > 1; left /= 2) {
        part /= 2;
        sum += 2 * of.exchange(part) + of.touch(part);
    }
    return sum;
}
/// `bytes`: of one block.
constexpr double cost_of_halving(const costed_call& of) {
    double part = of.bytes * of.ranks;
    double sum = 0;
    if (!std::has_single_bit(of.ranks)) sum = of.message(part) + of.touch(part) + of.message(of.bytes);
    for (unsigned left = std::bit_floor(of.ranks); left > 1; left /= 2) {
        part /= 2;
        sum += of.exchange(part) + of.touch(part);
    }
    return sum;
}

// ---- scans

constexpr double cost_of_log_step(const costed_call& of) {
    return of.levels() * (of.exchange(of.bytes) + 2 * of.touch(of.bytes));
}

/// The last rank hears of all others: in turn, or at a time.
constexpr double cost_of_overlapped_scan(const costed_call& of) {
    return cost_of_overlapped(of) + of.touch(of.bytes * (of.ranks - 1));
}

// ---- in two levels: within a host, and between hosts

[[nodiscard]] constexpr unsigned ranks_of_host(const costed_call& of) {
    return (of.ranks + of.hosts - 1) / of.hosts;
}
constexpr double cost_of_hierarchical_barrier(const costed_call& of) {
    return cost_of_tree_barrier(of.among(ranks_of_host(of), *of.within)) +
           cost_of_dissemination(of.among(of.hosts, *of.between));
}
constexpr double cost_of_hierarchical_broadcast(const costed_call& of) {
    return cost_of_tree(of.among(ranks_of_host(of), *of.within)) +
           cost_of_tree(of.among(of.hosts, *of.between));
}
constexpr double cost_of_hierarchical_reduce(const costed_call& of) {
    return cost_of_tree_reduce(of.among(ranks_of_host(of), *of.within)) +
           cost_of_tree_reduce(of.among(of.hosts, *of.between));
}
constexpr double cost_of_hierarchical_allreduce(const costed_call& of) {
    const costed_call here = of.among(ranks_of_host(of), *of.within);
    const costed_call there = of.among(of.hosts, *of.between);
    const bool is_short = of.bytes < (16 << 10);
    return cost_of_tree_reduce(here) + cost_of_tree(here) +
           (is_short ? cost_of_doubling_allreduce(there) : cost_of_rabenseifner(there));
}

constexpr double cost_of_hierarchical_blocks(const costed_call& of) {
    const costed_call here = of.among(ranks_of_host(of), *of.within);
    costed_call there = of.among(of.hosts, *of.between);
    there.bytes *= here.ranks;
    return of.bytes * of.ranks <= (16 << 10) ? cost_of_halves(here) + cost_of_halves(there)
                                             : cost_of_overlapped(here) + cost_of_overlapped(there);
}
constexpr double cost_of_hierarchical_allgather(const costed_call& of) {
    const costed_call here = of.among(ranks_of_host(of), *of.within);
    costed_call there = of.among(of.hosts, *of.between);
    there.bytes *= here.ranks;
    const double all = of.bytes * of.ranks;
    return (all <= (16 << 10) ? cost_of_halves(here) : cost_of_overlapped(here)) +
           (all <= (512 << 10) ? cost_of_doubling_allgather(there) : cost_of_ring_of_blocks(there)) +
           here.levels() * here.message(all);
}
constexpr double cost_of_hierarchical_alltoall(const costed_call& of) {
    costed_call here = of.among(ranks_of_host(of), *of.within);
    here.bytes *= of.ranks;
    costed_call there = of.among(of.hosts, *of.between);
    there.bytes *= here.ranks * here.ranks;
    // The leader moves what its host's ranks give and get, once each.
    return 2 * cost_of_overlapped(here) + cost_of_ring_of_blocks(there) +
           2 * of.touch(here.bytes * here.ranks);
}
constexpr double cost_of_hierarchical_reduce_scatter(const costed_call& of) {
    const costed_call here = of.among(ranks_of_host(of), *of.within);
    costed_call there = of.among(of.hosts, *of.between);
    there.bytes *= here.ranks;
    const double all = of.bytes * of.ranks;
    return here.levels() * (here.message(all) + of.touch(all)) +
           (all <= (256 << 10) ? cost_of_halving(there) : cost_of_reduce_around(there)) +
           cost_of_overlapped(here);
}
constexpr double cost_of_hierarchical_scan(const costed_call& of) {
    const costed_call here = of.among(ranks_of_host(of), *of.within);
    return cost_of_log_step(here) + cost_of_log_step(of.among(of.hosts, *of.between)) + cost_of_tree(here) +
           of.touch(of.bytes);
}

// ---- two others, one after the other

template <cost_function First, bool FirstOfAll, cost_function Second, bool SecondOfAll>
constexpr double cost_of_two(const costed_call& of) {
    return First(FirstOfAll ? of.of_all() : of) + Second(SecondOfAll ? of.of_all() : of);
}
/// The same of a part for each rank.
template <cost_function First, cost_function Second>
constexpr double cost_of_parts(const costed_call& of) {
    return First(of.of_part()) + Second(of.of_part());
}

}  // namespace rdmacoro::detail
