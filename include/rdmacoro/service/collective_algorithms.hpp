// collective_algorithms: the algorithms of collectives as types, and types that restrict them.
#pragma once

#include <rdmacoro/protocol/policy.hpp>
#include <rdmacoro/service/algorithm.hpp>
#include <rdmacoro/service/detail/admission.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <bit>
#include <cstddef>
#include <string_view>

namespace rdmacoro {

/// As the limit of an algorithm: any length.
using any_length = up_to<~std::size_t{0}>;

/// One rank with all others, one after the other.
template <class Limit = any_length>
struct flat_tree {
    /// The algorithm for a kind of collective; without a name where there is none.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        constexpr std::string_view name = "flat_tree";
        using namespace detail;
        if constexpr (K == barrier) {
            using steps = two_steps<Limit, gather, flat_tree<>, false, broadcast, flat_tree<>, false>;
            return steps::template make<&gather_broadcast_barrier>(name);
        }
        if constexpr (K == broadcast) return make_algorithm<Limit, everything>(name, &flat_broadcast);
        if constexpr (K == scatter) return make_algorithm<Limit, everything>(name, &flat_scatter);
        if constexpr (K == gather) return make_algorithm<Limit, everything>(name, &flat_gather);
        if constexpr (K == reduce)
            return make_algorithm < Limit, everything | can::input | can::fold > (name, &flat_reduce);
        if constexpr (K == scan || K == exscan)
            return make_algorithm < Limit, everything | can::input | can::fold > (name, &flat_scan);
        return {};
    }
};

/// One rank with all others, or all with all, at a time.
template <class Limit = any_length>
struct overlapped_flat_tree {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        constexpr std::string_view name = "overlapped_flat_tree";
        using namespace detail;
        if constexpr (K == broadcast)
            return make_algorithm<Limit, everything>(name, &overlapped_flat_broadcast);
        if constexpr (K == scatter) return make_algorithm<Limit, everything>(name, &overlapped_flat_scatter);
        if constexpr (K == gather) return make_algorithm<Limit, everything>(name, &overlapped_flat_gather);
        if constexpr (K == allgather)
            return make_algorithm<Limit, everything>(name, &overlapped_flat_allgather);
        if constexpr (K == alltoall)
            return make_algorithm < Limit, everything | can::input > (name, &overlapped_flat_alltoall);
        if constexpr (K == scan || K == exscan)
            return make_algorithm < Limit,
                   everything | can::input | can::fold > (name, &overlapped_flat_scan);
        return {};
    }
};

/// A tree in which the rank 2^k behind the root is reached in step k, from the longest distance on.
template <class Limit = any_length>
struct binomial {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        using namespace detail;
        if constexpr (K == broadcast)
            return make_algorithm<Limit, everything>("binomial", &binomial_broadcast);
        if constexpr (K == reduce)
            return make_algorithm < Limit, all_but(can::order) | can::input > ("binomial", &binomial_reduce);
        return {};
    }
};

/// A tree of halves of the ranks, in their order.
template <class Limit = any_length>
struct spanning_tree {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        constexpr std::string_view name = "spanning_tree";
        using namespace detail;
        if constexpr (K == barrier) return make_algorithm<Limit, everything>(name, &tree_barrier);
        if constexpr (K == broadcast)
            return make_algorithm<Limit, everything>(name, &spanning_tree_broadcast);
        if constexpr (K == scatter) return make_algorithm<Limit, everything>(name, &spanning_tree_scatter);
        if constexpr (K == gather) return make_algorithm<Limit, everything>(name, &spanning_tree_gather);
        if constexpr (K == reduce)
            return make_algorithm < Limit, everything | can::input > (name, &spanning_tree_reduce);
        return {};
    }
};

/// A tree in which a rank has three children at each distance. As a barrier: rank 0 hears of all at a time, and tells them by the tree.
template <class Limit = any_length>
struct four_ary_tree {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        constexpr std::string_view name = "four_ary_tree";
        using namespace detail;
        if constexpr (K == barrier) {
            using steps =
                two_steps<Limit, gather, overlapped_flat_tree<>, false, broadcast, four_ary_tree<>, false>;
            return steps::template make<&gather_broadcast_barrier>(name);
        }
        if constexpr (K == broadcast) return make_algorithm<Limit, everything>(name, &four_ary_broadcast);
        return {};
    }
};

/// A part to each rank, and then all parts to all.
template <class Limit = any_length>
struct scatter_allgather {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::broadcast)
            return make_algorithm<Limit, all_but(can::no_part)>("scatter_allgather",
                                                                &scatter_allgather_broadcast);
        return {};
    }
};

/// From rank to rank: a broadcast in pieces of 64 KiB, a scan in one.
template <class Limit = any_length>
struct chain {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        using namespace detail;
        if constexpr (K == broadcast) return make_algorithm<Limit, everything>("chain", &chain_broadcast);
        if constexpr (K == scan || K == exscan)
            return make_algorithm < Limit, everything | can::input | can::fold > ("chain", &chain_scan);
        return {};
    }
};

/// Around the ring, also called bucket algorithm: the fewest bytes, the most steps.
template <class Limit = any_length>
struct ring {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        using namespace detail;
        constexpr unsigned reduces = reduces_parts | can::input;
        if constexpr (K == allgather) return make_algorithm<Limit, everything>("ring", &ring_allgather);
        if constexpr (K == reduce) return make_algorithm<Limit, reduces>("ring", &ring_reduce);
        if constexpr (K == allreduce) return make_algorithm<Limit, reduces>("ring", &ring_allreduce);
        if constexpr (K == reduce_scatter)
            return make_algorithm < Limit, reduces | can::no_part > ("ring", &ring_reduce_scatter);
        return {};
    }
};

/// The ring in pieces of 32 KiB: one is combined while the next one is on its way.
template <class Limit = any_length>
struct pipelined_ring {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::allreduce)
            return make_algorithm < Limit,
                   reduces_parts | can::input | can::no_part > ("pipelined_ring", &pipelined_ring_allreduce);
        return {};
    }
};

/// The ring around the ranks of one host after the other: between hosts there is one message a step each way, however the ranks are numbered.
template <class Limit = any_length>
struct ring_by_host {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::allreduce)
            return make_algorithm < Limit, can::uneven | can::any_size | can::in_turn |
                                               can::input > ("ring_by_host", &ring_by_host_allreduce);
        return {};
    }
};

/// Around the ring in both directions at a time.
template <class Limit = any_length>
struct double_ring {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::allgather)
            return make_algorithm<Limit, everything>("double_ring", &double_ring_allgather);
        return {};
    }
};

/// With ranks at doubling distances, each step all that both have; also called bidirectional exchange.
template <class Limit = any_length>
struct recursive_doubling {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        constexpr std::string_view name = "recursive_doubling";
        if constexpr (K == collective_kind::allgather)
            return make_algorithm<Limit, everything>(name, &doubling_allgather);
        if constexpr (K == collective_kind::allreduce)
            return make_algorithm < Limit, everything | can::input > (name, &doubling_allreduce);
        return {};
    }
};

/// With ranks at halving distances, each step half of what is left. Not in the order of ranks: the most distant ones combine first.
template <class Limit = any_length>
struct recursive_halving {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::reduce_scatter)
            return make_algorithm < Limit, reduces_parts | can::repeat | can::input |
                                               can::no_part > ("recursive_halving", &halving_reduce_scatter);
        return {};
    }
};

/// Halving, then doubling.
template <class Limit = any_length>
struct rabenseifner {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::allreduce)
            return make_algorithm < Limit, can::any_size | can::one_host | can::in_turn |
                                               can::input > ("rabenseifner", &rabenseifner_allreduce);
        return {};
    }
};

/// Any number of ranks in as many steps as that number has bits.
template <class Limit = any_length>
struct bruck {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::allgather)
            return make_algorithm<Limit, all_but(can::uneven)>("bruck", &bruck_allgather);
        if constexpr (K == collective_kind::alltoall)
            return make_algorithm<Limit, all_but(can::uneven)>("bruck", &bruck_alltoall);
        return {};
    }
};

/// One partner at a time.
template <class Limit = any_length>
struct pairwise {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::alltoall)
            return make_algorithm < Limit, everything | can::input > ("pairwise", &pairwise_alltoall);
        if constexpr (K == collective_kind::reduce_scatter)
            return make_algorithm < Limit,
                   reduces_parts | can::input | can::no_part > ("pairwise", &pairwise_reduce_scatter);
        return {};
    }
};

/// To one rank, and from there to all: a barrier and an allgather as gather and broadcast, an allreduce as reduce and broadcast, a reduce_scatter
/// as reduce and scatter. `First` and `Second` carry these.
template <class Limit = any_length, class First = spanning_tree<>, class Second = spanning_tree<>>
struct by_root {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        constexpr std::string_view name = "by_root";
        using namespace detail;
        if constexpr (K == barrier) {
            using steps = two_steps<Limit, gather, First, false, broadcast, Second, false>;
            return steps::template make<&gather_broadcast_barrier>(name);
        }
        if constexpr (K == allgather) {
            using steps = two_steps<Limit, gather, First, false, broadcast, Second, true>;
            return steps::template make<&gather_broadcast_allgather>(name);
        }
        if constexpr (K == allreduce) {
            using steps = two_steps<Limit, reduce, First, false, broadcast, Second, false>;
            return steps::template make<&reduce_broadcast_allreduce>(name, steps::first.from_input);
        }
        if constexpr (K == reduce_scatter) {
            using steps = two_steps<Limit, reduce, First, true, scatter, Second, false>;
            return steps::template make<&reduce_then_scatter>(name, true);
        }
        return {};
    }
};

/// A part of the elements for each rank first: an allreduce as reduce_scatter and allgather, a reduce as reduce_scatter and gather, a broadcast as scatter
/// and allgather. `First` and `Second` carry these.
template <class Limit = any_length, class First = ring<>, class Second = spanning_tree<>>
struct by_parts {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        constexpr std::string_view name = "by_parts";
        using namespace detail;
        if constexpr (K == broadcast) {
            using steps = two_steps<Limit, scatter, First, false, allgather, Second, false, true>;
            return steps::template make<&in_parts>(name);
        }
        if constexpr (K == reduce) {
            using steps = two_steps<Limit, reduce_scatter, First, false, gather, Second, false, true>;
            return steps::template make<&in_parts>(name, true);
        }
        if constexpr (K == allreduce) {
            using steps = two_steps<Limit, reduce_scatter, First, false, allgather, Second, false, true>;
            return steps::template make<&in_parts>(name, true);
        }
        return {};
    }
};

/// Each rank hears of those at doubling distances before it.
template <class Limit = any_length>
struct dissemination {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::barrier)
            return make_algorithm<Limit, everything>("dissemination", &dissemination_barrier);
        return {};
    }
};

/// In as many steps as the number of ranks has bits, each twice as far.
template <class Limit = any_length>
struct log_step {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::scan || K == collective_kind::exscan)
            return make_algorithm < Limit, everything | can::input > ("log_step", &log_step_scan);
        return {};
    }
};

/// Within each host first, and then between the hosts.
template <class Limit = any_length>
struct hierarchical {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        using namespace detail;
        constexpr std::string_view name = "hierarchical";
        constexpr unsigned moves = all_but(can::one_host);
        constexpr unsigned alike = moves & ~static_cast<unsigned>(can::uneven);
        // Ranks of several hosts may be numbered in turn: their order is not kept. What is grouped by hosts is so by where the ranks are.
        constexpr unsigned reduces = can::uneven | can::any_size | can::no_part | can::in_turn | can::input;
        constexpr unsigned scans = can::order | can::any_size | can::no_part | can::input;
        if constexpr (K == barrier) return make_algorithm<Limit, moves>(name, &hierarchical_barrier);
        if constexpr (K == broadcast) return make_algorithm<Limit, moves>(name, &hierarchical_broadcast);
        if constexpr (K == scatter) return make_algorithm<Limit, alike>(name, &hierarchical_scatter);
        if constexpr (K == gather) return make_algorithm<Limit, alike>(name, &hierarchical_gather);
        if constexpr (K == allgather) return make_algorithm<Limit, moves>(name, &hierarchical_allgather);
        if constexpr (K == alltoall)
            return make_algorithm < Limit, alike | can::input > (name, &hierarchical_alltoall);
        if constexpr (K == reduce) return make_algorithm<Limit, reduces>(name, &hierarchical_reduce);
        if constexpr (K == allreduce) return make_algorithm<Limit, reduces>(name, &hierarchical_allreduce);
        if constexpr (K == reduce_scatter)
            return make_algorithm<Limit, reduces>(name, &hierarchical_reduce_scatter);
        if constexpr (K == scan || K == exscan) return make_algorithm<Limit, scans>(name, &hierarchical_scan);
        return {};
    }
};

namespace detail {
template <unsigned Ranks>
struct few_ranks {
    static constexpr bool admits(const collective_shape& s) { return s.ranks <= Ranks; }
};
template <unsigned Ranks>
struct many_ranks {
    static constexpr bool admits(const collective_shape& s) { return s.ranks >= Ranks; }
};
struct power_of_two {
    static constexpr bool admits(const collective_shape& s) { return std::has_single_bit(s.ranks); }
};
template <std::size_t Bytes>
struct many_bytes_a_rank {
    static constexpr bool admits(const collective_shape& s) { return s.bytes / s.ranks >= Bytes; }
};
struct blocks_alike {
    static constexpr bool admits(const collective_shape& s) { return !s.uneven; }
};

/// An algorithm for those shapes alone that the rule admits.
template <class Rule, class Algorithm>
struct only_where {
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        return restricted<&Algorithm::template of<K>, Rule>();
    }
};
}  // namespace detail

/// An algorithm for groups of at most `Ranks` ranks.
template <unsigned Ranks, class Algorithm>
using ranks_up_to = detail::only_where<detail::few_ranks<Ranks>, Algorithm>;
/// An algorithm for groups of at least `Ranks` ranks.
template <unsigned Ranks, class Algorithm>
using ranks_from = detail::only_where<detail::many_ranks<Ranks>, Algorithm>;
/// An algorithm for groups of a power of two of ranks, for which some have fewer steps.
template <class Algorithm>
using powers_of_two = detail::only_where<detail::power_of_two, Algorithm>;
/// An algorithm for a whole of at least `Bytes` for each rank of the group.
template <std::size_t Bytes, class Algorithm>
using bytes_a_rank = detail::only_where<detail::many_bytes_a_rank<Bytes>, Algorithm>;
/// An algorithm for blocks of one length: with those of several, the lengths decide nothing, as not all ranks know them.
template <class Algorithm>
using even_blocks = detail::only_where<detail::blocks_alike, Algorithm>;

}  // namespace rdmacoro
