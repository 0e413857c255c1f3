// collectives: lists of algorithms, by which a group chooses.
#pragma once

#include <rdmacoro/service/algorithm.hpp>
#include <rdmacoro/service/collective_algorithms.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rdmacoro {

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
        return {A::name, &A::admits, &A::run, false, {}};
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
    [[nodiscard]] static constexpr const algorithm* choose(const collective_shape& of) {
        const collective_shape shape = of.for_choice();
        const algorithm* found = nullptr;
        static_cast<void>((... || (Lists::kind == shape.kind && (found = Lists::choose(shape)) != nullptr)));
        return found;
    }
};

/// The lists of a group that was given none. Limits were measured over shared memory and TCP, those for many ranks in the model of
/// `bench/collectives_model`.
using default_collectives = collectives<
    barriers<hierarchical<>, dissemination<>>,
    broadcast<
        hierarchical<up_to<(64u << 10)>>, binomial<up_to<(128u << 10)>>, bytes_a_rank<(128u << 10), chain<>>,
        bytes_a_rank<(2u << 10), by_parts<any_length, spanning_tree<>, recursive_doubling<>>>, binomial<>>,
    scatters<even_blocks<spanning_tree<up_to<(4u << 10)>>>, overlapped_flat_tree<>>,
    gathers<even_blocks<spanning_tree<up_to<(4u << 10)>>>, overlapped_flat_tree<>>,
    allgather<even_blocks<powers_of_two<recursive_doubling<up_to<(32u << 10)>>>>, bruck<up_to<(2u << 10)>>,
              ring<>>,
    alltoall<ranks_up_to<2, pairwise<>>, bruck<up_to<64>>, ranks_from<32, bruck<up_to<256>>>,
             overlapped_flat_tree<up_to<(8u << 10)>>, pairwise<>>,
    reduce<hierarchical<up_to<(64u << 10)>>, spanning_tree<up_to<(64u << 10)>>,
           bytes_a_rank<(64u << 10), ring<>>,
           bytes_a_rank<(1u << 10), by_parts<any_length, recursive_halving<>, spanning_tree<>>>,
           spanning_tree<>, flat_tree<>>,
    allreduce<hierarchical<up_to<(16u << 10)>>, ranks_up_to<2, recursive_doubling<up_to<(128u << 10)>>>,
              recursive_doubling<up_to<(8u << 10)>>, bytes_a_rank<(8u << 10), ring_by_host<>>,
              powers_of_two<rabenseifner<>>, bytes_a_rank<(16u << 10), ring<>>, rabenseifner<>,
              recursive_doubling<>, by_root<any_length, flat_tree<>, binomial<>>>,
    reduce_scatter<even_blocks<powers_of_two<recursive_halving<up_to<(64u << 10)>>>>,
                   ranks_up_to<5, pairwise<up_to<512>>>, even_blocks<recursive_halving<up_to<(4u << 10)>>>,
                   pairwise<up_to<512>>, ring<>, by_root<>,
                   by_root<any_length, flat_tree<>, overlapped_flat_tree<>>>,
    scan<log_step<>, chain<>>, exscan<log_step<>, chain<>>>;

/// Which algorithm carries which length, as a table: for each kind, for a group of so many ranks on so many hosts; then
/// the same of operations that are not associative. `in_turn`: ranks of one host do not follow each other.
/// Throws `errc::invalid_argument` for no ranks, no hosts, and more hosts than ranks.
[[nodiscard]] std::string explain_collectives(unsigned ranks, unsigned hosts = 1,
                                              algorithm_choice choice = &default_collectives::choose,
                                              bool in_turn = false);

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/collectives.ipp>
#endif
