// collectives: the algorithms of collectives as types, and lists of them by which a group chooses.
#pragma once

#include <rdmacoro/protocol/policy.hpp>
#include <rdmacoro/service/algorithm.hpp>
#include <rdmacoro/service/detail/admission.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
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
        if constexpr (K == broadcast) return make_algorithm<Limit, everything>(name, &flat_broadcast);
        if constexpr (K == scatter) return make_algorithm<Limit, everything>(name, &flat_scatter);
        if constexpr (K == gather) return make_algorithm<Limit, everything>(name, &flat_gather);
        if constexpr (K == reduce) return make_algorithm<Limit, everything>(name, &flat_reduce);
        if constexpr (K == scan || K == exscan) return make_algorithm<Limit, everything>(name, &flat_scan);
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
            return make_algorithm<Limit, everything>(name, &overlapped_flat_alltoall);
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
            return make_algorithm<Limit, all_but(can::order)>("binomial", &binomial_reduce);
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
        if constexpr (K == scatter)
            return make_algorithm<Limit, all_but(can::uneven)>(name, &spanning_tree_scatter);
        if constexpr (K == gather)
            return make_algorithm<Limit, all_but(can::uneven)>(name, &spanning_tree_gather);
        if constexpr (K == reduce) return make_algorithm<Limit, everything>(name, &spanning_tree_reduce);
        return {};
    }
};

/// A tree in which a rank has three children at each distance.
template <class Limit = any_length>
struct four_ary_tree {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::broadcast)
            return make_algorithm<Limit, everything>("four_ary_tree", &four_ary_broadcast);
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

/// Pieces of 64 KiB from rank to rank.
template <class Limit = any_length>
struct chain {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using namespace detail;
        if constexpr (K == collective_kind::broadcast)
            return make_algorithm<Limit, everything>("chain", &chain_broadcast);
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
        constexpr unsigned reduces = can::uneven | can::any_size | can::one_host;
        if constexpr (K == allgather) return make_algorithm<Limit, everything>("ring", &ring_allgather);
        if constexpr (K == reduce) return make_algorithm<Limit, reduces>("ring", &ring_reduce);
        if constexpr (K == allreduce) return make_algorithm<Limit, reduces>("ring", &ring_allreduce);
        if constexpr (K == reduce_scatter)
            return make_algorithm < Limit, reduces | can::no_part > ("ring", &ring_reduce_scatter);
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
            return make_algorithm<Limit, all_but(can::any_size)>(name, &doubling_allgather);
        if constexpr (K == collective_kind::allreduce)
            return make_algorithm<Limit, everything>(name, &doubling_allreduce);
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
            return make_algorithm < Limit, can::repeat | can::one_host |
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
            return make_algorithm < Limit,
                   can::any_size | can::one_host > ("rabenseifner", &rabenseifner_allreduce);
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
            return make_algorithm<Limit, everything>("pairwise", &pairwise_alltoall);
        if constexpr (K == collective_kind::reduce_scatter)
            return make_algorithm < Limit, can::uneven | can::any_size | can::one_host |
                                               can::no_part > ("pairwise", &pairwise_reduce_scatter);
        return {};
    }
};

/// To one rank, and from there to all: an allgather as gather and broadcast, an allreduce as reduce and broadcast, a reduce_scatter as reduce
/// and scatter. `First` and `Second` carry these.
template <class Limit = any_length, class First = spanning_tree<>, class Second = spanning_tree<>>
struct by_root {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        using enum collective_kind;
        using namespace detail;
        if constexpr (K == allgather) {
            using steps = two_steps<Limit, gather, First, false, broadcast, Second, true>;
            return steps::template make<&gather_broadcast_allgather>();
        }
        if constexpr (K == allreduce) {
            using steps = two_steps<Limit, reduce, First, false, broadcast, Second, false>;
            return steps::template make<&reduce_broadcast_allreduce>();
        }
        if constexpr (K == reduce_scatter) {
            using steps = two_steps<Limit, reduce, First, true, scatter, Second, false>;
            return steps::template make<&reduce_then_scatter>();
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
            return make_algorithm<Limit, everything>("log_step", &log_step_scan);
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
        // Ranks of several hosts may be numbered in turn: their order is not kept.
        constexpr unsigned reduces = can::uneven | can::any_size | can::no_part;
        if constexpr (K == barrier)
            return make_algorithm<Limit, all_but(can::one_host)>(name, &hierarchical_barrier);
        if constexpr (K == broadcast)
            return make_algorithm<Limit, all_but(can::one_host)>(name, &hierarchical_broadcast);
        if constexpr (K == reduce) return make_algorithm<Limit, reduces>(name, &hierarchical_reduce);
        if constexpr (K == allreduce) return make_algorithm<Limit, reduces>(name, &hierarchical_allreduce);
        return {};
    }
};

/// An algorithm for groups of at most `Ranks` ranks.
template <unsigned Ranks, class Algorithm>
struct ranks_up_to {
    /// As `flat_tree::of`.
    template <collective_kind K>
    [[nodiscard]] static constexpr algorithm of() noexcept {
        constexpr algorithm all = Algorithm::template of<K>();
        if constexpr (all.name.empty()) {
            return {};
        } else {
            return {all.name,
                    [](const collective_shape& s) {
                        return s.ranks <= Ranks && Algorithm::template of<K>().admits(s);
                    },
                    all.run};
        }
    }
};

/// An algorithm of the user's own: a type with `static constexpr std::string_view name`, `static bool admits(const
/// collective_shape&)` and `static task<> run(collective&)`. `docs/collectives.md` shows one.
template <class A>
concept own_algorithm = requires(const collective_shape& shape, collective& c) {
    { A::name } -> std::convertible_to<std::string_view>;
    { A::admits(shape) } -> std::same_as<bool>;
    { A::run(c) } -> std::same_as<task<>>;
};

namespace detail {

template <collective_kind K, class A>
[[nodiscard]] constexpr algorithm algorithm_of() {
    if constexpr (own_algorithm<A>) {
        return {A::name, &A::admits, &A::run};
    } else {
        constexpr algorithm found = A::template of<K>();
        // By its name: under -fsanitize=undefined g++ takes no comparison of a function for a constant.
        static_assert(!found.name.empty(), "this algorithm is not one of this collective");
        return found;
    }
}

/// The algorithms of one kind, in the order in which they are asked.
template <collective_kind K, class... As>
struct algorithm_list {
    static constexpr collective_kind kind = K;
    static constexpr std::array<algorithm, sizeof...(As)> table{algorithm_of<K, As>()...};
    [[nodiscard]] static constexpr const algorithm* choose(const collective_shape& shape) {
        for (const algorithm& one : table) {
            if (one.admits(shape)) return &one;
        }
        return nullptr;
    }
};

}  // namespace detail

/// The algorithms of barriers: the first that admits one carries it.
template <class... As>
using barriers = detail::algorithm_list<collective_kind::barrier, As...>;
/// The same for `group::broadcast`.
template <class... As>
using broadcast = detail::algorithm_list<collective_kind::broadcast, As...>;
/// The same for `group::scatter` and `scatterv`.
template <class... As>
using scatters = detail::algorithm_list<collective_kind::scatter, As...>;
/// The same for `group::gather` and `gatherv`.
template <class... As>
using gathers = detail::algorithm_list<collective_kind::gather, As...>;
/// The same for `group::allgather` and `allgatherv`.
template <class... As>
using allgather = detail::algorithm_list<collective_kind::allgather, As...>;
/// The same for `group::alltoall` and `alltoallv`.
template <class... As>
using alltoall = detail::algorithm_list<collective_kind::alltoall, As...>;
/// The same for `group::reduce`.
template <class... As>
using reduce = detail::algorithm_list<collective_kind::reduce, As...>;
/// The same for `group::allreduce`.
template <class... As>
using allreduce = detail::algorithm_list<collective_kind::allreduce, As...>;
/// The same for `group::reduce_scatter`.
template <class... As>
using reduce_scatter = detail::algorithm_list<collective_kind::reduce_scatter, As...>;
/// The same for `group::scan`.
template <class... As>
using scan = detail::algorithm_list<collective_kind::scan, As...>;
/// The same for `group::exscan`.
template <class... As>
using exscan = detail::algorithm_list<collective_kind::exscan, As...>;

/// Lists of algorithms, one for each kind that is not to be chosen by default. The choice is a function of the shape alone. What no
/// algorithm of a list admits goes by the default.
template <class... Lists>
struct collectives {
    /// The algorithm for a shape; nullptr: no list of these admits it.
    [[nodiscard]] static constexpr const algorithm* choose(const collective_shape& shape) {
        const algorithm* found = nullptr;
        static_cast<void>((... || (Lists::kind == shape.kind && (found = Lists::choose(shape)) != nullptr)));
        return found;
    }
};

/// The lists of a group that was given none.
using default_collectives = collectives<
    barriers<hierarchical<>, dissemination<>>,
    broadcast<hierarchical<up_to<(64u << 10)>>, binomial<up_to<(128u << 10)>>, chain<>>,
    scatters<spanning_tree<up_to<(4u << 10)>>, overlapped_flat_tree<>>,
    gathers<spanning_tree<up_to<(4u << 10)>>, overlapped_flat_tree<>>,
    allgather<recursive_doubling<up_to<(8u << 10)>>, bruck<up_to<(2u << 10)>>, ring<>>,
    alltoall<bruck<up_to<64>>, overlapped_flat_tree<up_to<(8u << 10)>>, pairwise<>>,
    reduce<hierarchical<up_to<(64u << 10)>>, spanning_tree<up_to<(64u << 10)>>, ring<>, spanning_tree<>>,
    allreduce<hierarchical<up_to<(16u << 10)>>, ranks_up_to<2, recursive_doubling<up_to<(128u << 10)>>>,
              recursive_doubling<up_to<(8u << 10)>>, rabenseifner<>, recursive_doubling<>>,
    reduce_scatter<recursive_halving<up_to<(64u << 10)>>, pairwise<up_to<512>>, ring<>, by_root<>>,
    scan<log_step<>>, exscan<log_step<>>>;

/// Which algorithm carries which length, as a table: for each kind, for a group of so many ranks on so many hosts.
[[nodiscard]] std::string explain_collectives(unsigned ranks, unsigned hosts = 1,
                                              algorithm_choice choice = &default_collectives::choose);

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/collectives.ipp>
#endif
