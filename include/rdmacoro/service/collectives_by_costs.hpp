// collectives_by_costs: algorithms of collectives chosen by what a link's messages cost.
#pragma once

#include <rdmacoro/service/collectives.hpp>
#include <rdmacoro/service/detail/algorithm_costs.hpp>
#include <rdmacoro/service/link_costs.hpp>

#include <concepts>
#include <limits>
#include <span>
#include <string_view>

namespace rdmacoro {

/// A step of a collective that is done as two others.
struct algorithm_step {
    collective_kind kind{};        ///< which collective
    std::string_view algorithm{};  ///< that carries it
};

/// An algorithm with its cost. Where it is two other collectives, one after the other, `first` and `second` say which: an allreduce as reduce and
/// broadcast, a broadcast as scatter and allgather. They take the place of those that are done directly wherever their costs together are less. Source: Taboada's
/// thesis (2009), 2.4.3.
struct costed_algorithm {
    algorithm how{};                       ///< the algorithm
    detail::cost_function cost = nullptr;  ///< of a call
    algorithm_step first{};                ///< without a name: it is no two others
    algorithm_step second{};               ///< behind it

    /// Whether it is two others.
    [[nodiscard]] constexpr bool is_substitute() const noexcept { return !first.algorithm.empty(); }
};

/// The cost of a call by the cheapest algorithm.
struct cheapest {
    static constexpr double none =
        std::numeric_limits<double>::infinity();  ///< the cost where none admits it

    const costed_algorithm* found = nullptr;  ///< nullptr: none admits it
    double ns = none;                         ///< its cost
    const costed_algorithm* direct =
        nullptr;              ///< the cheapest that is no substitute; nullptr: none admits it
    double direct_ns = none;  ///< the cost of that
};

namespace detail {

template <collective_kind K, class A>
[[nodiscard]] constexpr costed_algorithm costed(cost_function cost) {
    return {algorithm_of<K, A>(), cost, {}, {}};
}
/// In parts: `A` and `B` are the kinds of the two steps.
template <collective_kind K, collective_kind A, class First, collective_kind B, class Second>
[[nodiscard]] constexpr costed_algorithm costed_parts(cost_function cost) {
    constexpr algorithm made = algorithm_of<K, by_parts<any_length, First, Second>>();
    return {made, cost, {A, made.steps[0]}, {B, made.steps[1]}};
}
/// By a root.
template <collective_kind K, collective_kind A, class First, collective_kind B, class Second>
[[nodiscard]] constexpr costed_algorithm costed_steps(cost_function cost, std::string_view first,
                                                      std::string_view second) {
    return {algorithm_of<K, by_root<any_length, First, Second>>(), cost, {A, first}, {B, second}};
}
template <class First, class Second>
[[nodiscard]] constexpr costed_algorithm costed_allgather(cost_function cost, std::string_view first,
                                                          std::string_view second) {
    using enum collective_kind;
    return costed_steps<allgather, gather, First, broadcast, Second>(cost, first, second);
}
template <class First, class Second>
[[nodiscard]] constexpr costed_algorithm costed_allreduce(cost_function cost, std::string_view first,
                                                          std::string_view second) {
    using enum collective_kind;
    return costed_steps<allreduce, reduce, First, broadcast, Second>(cost, first, second);
}
template <class First, class Second>
[[nodiscard]] constexpr costed_algorithm costed_reduce_scatter(cost_function cost, std::string_view first,
                                                               std::string_view second) {
    using enum collective_kind;
    return costed_steps<reduce_scatter, reduce, First, scatter, Second>(cost, first, second);
}

template <collective_kind K>
struct costed_table;
template <>
struct costed_table<collective_kind::barrier> {
    static constexpr auto k = collective_kind::barrier;
    static constexpr costed_algorithm all[]{
        costed<k, dissemination<>>(&cost_of_dissemination),
        costed<k, spanning_tree<>>(&cost_of_tree_barrier),
        costed<k, four_ary_tree<>>(&cost_of_two<&cost_of_overlapped, false, &cost_of_four_ary, false>),
        costed<k, hierarchical<>>(&cost_of_hierarchical_barrier),
    };
};
template <>
struct costed_table<collective_kind::broadcast> {
    static constexpr auto k = collective_kind::broadcast;
    static constexpr costed_algorithm all[]{
        costed<k, binomial<>>(&cost_of_tree),
        costed<k, overlapped_flat_tree<>>(&cost_of_overlapped),
        costed<k, four_ary_tree<>>(&cost_of_four_ary),
        costed<k, chain<>>(&cost_of_chain),
        costed<k, hierarchical<>>(&cost_of_hierarchical_broadcast),
        costed_algorithm{algorithm_of<k, scatter_allgather<>>(),
                         &cost_of_scatter_allgather,
                         {collective_kind::scatter, "spanning_tree"},
                         {collective_kind::allgather, "ring"}},
        costed_parts<k, collective_kind::scatter, spanning_tree<>, collective_kind::allgather,
                     recursive_doubling<>>(&cost_of_parts<&cost_of_halves, &cost_of_doubling_allgather>),
    };
};
template <>
struct costed_table<collective_kind::scatter> {
    static constexpr auto k = collective_kind::scatter;
    static constexpr costed_algorithm all[]{
        costed<k, overlapped_flat_tree<>>(&cost_of_overlapped),
        costed<k, spanning_tree<>>(&cost_of_halves),
        costed<k, hierarchical<>>(&cost_of_hierarchical_blocks),
    };
};
template <>
struct costed_table<collective_kind::gather> {
    static constexpr auto k = collective_kind::gather;
    static constexpr costed_algorithm all[]{
        costed<k, overlapped_flat_tree<>>(&cost_of_overlapped),
        costed<k, spanning_tree<>>(&cost_of_halves),
        costed<k, hierarchical<>>(&cost_of_hierarchical_blocks),
    };
};
template <>
struct costed_table<collective_kind::allgather> {
    static constexpr auto k = collective_kind::allgather;
    static constexpr costed_algorithm all[]{
        costed<k, recursive_doubling<>>(&cost_of_doubling_allgather),
        costed<k, bruck<>>(&cost_of_bruck_allgather),
        costed<k, ring<>>(&cost_of_ring_of_blocks),
        costed<k, double_ring<>>(&cost_of_double_ring),
        costed<k, hierarchical<>>(&cost_of_hierarchical_allgather),
        costed<k, overlapped_flat_tree<>>(&cost_of_all_at_a_time),
        costed_allgather<spanning_tree<>, binomial<>>(
            &cost_of_two<&cost_of_halves, false, &cost_of_tree, true>, "spanning_tree", "binomial"),
        costed_allgather<overlapped_flat_tree<>, overlapped_flat_tree<>>(
            &cost_of_two<&cost_of_overlapped, false, &cost_of_overlapped, true>, "overlapped_flat_tree",
            "overlapped_flat_tree"),
        costed_allgather<overlapped_flat_tree<>, chain<>>(
            &cost_of_two<&cost_of_overlapped, false, &cost_of_chain, true>, "overlapped_flat_tree", "chain"),
    };
};
template <>
struct costed_table<collective_kind::alltoall> {
    static constexpr auto k = collective_kind::alltoall;
    static constexpr costed_algorithm all[]{
        costed<k, pairwise<>>(&cost_of_ring_of_blocks),
        costed<k, overlapped_flat_tree<>>(&cost_of_all_at_a_time),
        costed<k, bruck<>>(&cost_of_bruck_alltoall),
        costed<k, hierarchical<>>(&cost_of_hierarchical_alltoall),
    };
};
template <>
struct costed_table<collective_kind::reduce> {
    static constexpr auto k = collective_kind::reduce;
    static constexpr costed_algorithm all[]{
        costed<k, spanning_tree<>>(&cost_of_tree_reduce),
        costed<k, flat_tree<>>(&cost_of_flat_reduce),
        costed<k, ring<>>(&cost_of_ring_reduce),
        costed_parts<k, collective_kind::reduce_scatter, recursive_halving<>, collective_kind::gather,
                     spanning_tree<>>(&cost_of_parts<&cost_of_halving, &cost_of_halves>),
        costed<k, hierarchical<>>(&cost_of_hierarchical_reduce),
    };
};
template <>
struct costed_table<collective_kind::allreduce> {
    static constexpr auto k = collective_kind::allreduce;
    static constexpr costed_algorithm all[]{
        costed<k, recursive_doubling<>>(&cost_of_doubling_allreduce),
        costed<k, rabenseifner<>>(&cost_of_rabenseifner),
        costed<k, ring<>>(&cost_of_ring_allreduce),
        costed<k, hierarchical<>>(&cost_of_hierarchical_allreduce),
        costed_allreduce<spanning_tree<>, binomial<>>(
            &cost_of_two<&cost_of_tree_reduce, false, &cost_of_tree, false>, "spanning_tree", "binomial"),
        costed_allreduce<spanning_tree<>, overlapped_flat_tree<>>(
            &cost_of_two<&cost_of_tree_reduce, false, &cost_of_overlapped, false>, "spanning_tree",
            "overlapped_flat_tree"),
        costed_allreduce<ring<>, chain<>>(&cost_of_two<&cost_of_ring_reduce, false, &cost_of_chain, false>,
                                          "ring", "chain"),
    };
};
template <>
struct costed_table<collective_kind::reduce_scatter> {
    static constexpr auto k = collective_kind::reduce_scatter;
    static constexpr costed_algorithm all[]{
        costed<k, ring<>>(&cost_of_reduce_around),
        costed<k, recursive_halving<>>(&cost_of_halving),
        costed<k, pairwise<>>(&cost_of_reduce_around),
        costed<k, hierarchical<>>(&cost_of_hierarchical_reduce_scatter),
        costed_reduce_scatter<spanning_tree<>, spanning_tree<>>(
            &cost_of_two<&cost_of_tree_reduce, true, &cost_of_halves, false>, "spanning_tree",
            "spanning_tree"),
        costed_reduce_scatter<spanning_tree<>, overlapped_flat_tree<>>(
            &cost_of_two<&cost_of_tree_reduce, true, &cost_of_overlapped, false>, "spanning_tree",
            "overlapped_flat_tree"),
    };
};
template <>
struct costed_table<collective_kind::scan> {
    static constexpr costed_algorithm all[]{
        costed<collective_kind::scan, log_step<>>(&cost_of_log_step),
        costed<collective_kind::scan, chain<>>(&cost_of_flat_reduce),
        costed<collective_kind::scan, overlapped_flat_tree<>>(&cost_of_overlapped_scan),
        costed<collective_kind::scan, hierarchical<>>(&cost_of_hierarchical_scan),
    };
};
template <>
struct costed_table<collective_kind::exscan> {
    static constexpr costed_algorithm all[]{
        costed<collective_kind::exscan, log_step<>>(&cost_of_log_step),
        costed<collective_kind::exscan, chain<>>(&cost_of_flat_reduce),
        costed<collective_kind::exscan, overlapped_flat_tree<>>(&cost_of_overlapped_scan),
        costed<collective_kind::exscan, hierarchical<>>(&cost_of_hierarchical_scan),
    };
};

}  // namespace detail

/// The algorithms of a kind with known costs.
[[nodiscard]] constexpr std::span<const costed_algorithm> costed_algorithms(collective_kind kind) noexcept {
    using enum collective_kind;
    switch (kind) {
        case barrier: return detail::costed_table<barrier>::all;
        case broadcast: return detail::costed_table<broadcast>::all;
        case scatter: return detail::costed_table<scatter>::all;
        case gather: return detail::costed_table<gather>::all;
        case allgather: return detail::costed_table<allgather>::all;
        case alltoall: return detail::costed_table<alltoall>::all;
        case reduce: return detail::costed_table<reduce>::all;
        case allreduce: return detail::costed_table<allreduce>::all;
        case reduce_scatter: return detail::costed_table<reduce_scatter>::all;
        case scan: return detail::costed_table<scan>::all;
        case exscan: return detail::costed_table<exscan>::all;
    }
    return {};
}

/// The cost of a call by that algorithm, in nanoseconds. `within`: between ranks on a host; `between`: between hosts.
[[nodiscard]] constexpr double cost_of(const costed_algorithm& by, const collective_shape& shape,
                                       const link_costs& within, const link_costs& between) {
    return shape.ranks < 2
               ? 0
               : by.cost({static_cast<double>(shape.bytes), shape.ranks, shape.hosts, &within, &between});
}

/// The algorithm that costs the least of those that admit a call. Of blocks of several lengths nothing is known: none. What is to be
/// reproducible goes by what costs the least for no elements, whatever its length.
[[nodiscard]] constexpr cheapest cheapest_algorithm(const collective_shape& of, const link_costs& within,
                                                    const link_costs& between) {
    cheapest best;
    const collective_shape shape = of.for_choice();
    if (shape.uneven) return best;
    for (const costed_algorithm& one : costed_algorithms(shape.kind)) {
        if (!one.how.admits(shape)) continue;
        const double ns = cost_of(one, shape, within, between);
        if (ns < best.ns) {
            best.found = &one;
            best.ns = ns;
        }
        if (!one.is_substitute() && ns < best.direct_ns) {
            best.direct = &one;
            best.direct_ns = ns;
        }
    }
    return best;
}

/// A type with the costs of links: between ranks on a host, and between hosts. `tools/tune --header FILE` writes one.
template <class L>
concept has_link_costs = requires {
    { L::within } -> std::convertible_to<const link_costs&>;
    { L::between } -> std::convertible_to<const link_costs&>;
};

/// For `group::use`: the choice of each algorithm by costs that the compiler knows. Calls without known costs go by the default.
template <has_link_costs Costs>
struct collectives_by_costs {
    /// As `collectives::choose`.
    [[nodiscard]] static constexpr const algorithm* choose(const collective_shape& shape) {
        const cheapest best = cheapest_algorithm(shape, Costs::within, Costs::between);
        return best.ns < cheapest::none ? &best.found->how : nullptr;
    }
};

/// The costs that come with the toolkit: `shm_costs` within a host, `tcp_costs` between hosts.
struct usual_costs {
    static constexpr link_costs within = shm_costs;   ///< on a host
    static constexpr link_costs between = tcp_costs;  ///< between hosts
};

}  // namespace rdmacoro
