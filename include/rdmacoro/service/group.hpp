// group: collectives of ranks as awaitables.
#pragma once

#include <rdmacoro/memory/detail/owning_temporary.hpp>
#include <rdmacoro/service/collectives.hpp>
#include <rdmacoro/service/detail/run_collective.hpp>
#include <rdmacoro/service/group_failure.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmacoro {

/// The rank that gives or gets, of `broadcast`, `scatter`, `gather` and `reduce`.
struct root {
    unsigned rank = 0;  ///< in the group
    /// That rank.
    constexpr explicit root(unsigned which) noexcept : rank(which) {}
};

/// Instead of a contribution: it lies where the result will be.
struct in_place_t {};
inline constexpr in_place_t in_place{};  ///< `g.allreduce(rc::in_place, x, std::plus<>{})`

/// For reductions: the same bits for the same number of ranks, whatever the length and the timing. All ranks say so, or none.
struct reproducible_t {};
inline constexpr reproducible_t reproducible{};  ///< `g.allreduce(mine, x, std::plus<>{}, rc::reproducible)`

/// Of `group::split`: a rank that will be in no group.
inline constexpr std::int64_t no_color = -1;

namespace detail {

template <class R>
using element_t = std::remove_cv_t<std::ranges::range_value_t<R>>;

/// Elements in a row that the caller keeps.
template <class R>
concept elements_to_read = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                           std::ranges::borrowed_range<R> && std::is_trivially_copyable_v<element_t<R>>;
template <class R>
concept elements_to_write =
    elements_to_read<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

template <class A, class B>
concept same_elements = std::same_as<element_t<A>, element_t<B>>;

template <class R>
[[nodiscard]] const std::byte* read_from(R&& row) noexcept {
    return reinterpret_cast<const std::byte*>(std::ranges::data(row));
}
template <class R>
[[nodiscard]] std::byte* write_to(R&& row) noexcept {
    return reinterpret_cast<std::byte*>(std::ranges::data(row));
}

}  // namespace detail

/// Ranks that do collectives together. Each rank calls the same collectives of a group in the same order; those of different groups, and several
/// of one group that were begun in the same order, run at a time. Their messages travel over connections of their own: a `recv` of the user's sees none of them.
///
/// Contributions and results are ranges of trivially copyable elements in a row (vectors, arrays, spans), borrowed until the collective ends. An
/// operation is a function object of at most 32 bytes that is trivially copyable; see `is_commutative` for its order. Every rank gives the
/// same lengths, roots and types; with `NDEBUG` undefined, or `RDMACORO_CHECK_COLLECTIVES=1` for all ranks, they compare them first, and all end with
/// `group_errc::mismatch` and the ranks that differ.
///
/// Errors. When a rank is lost, or a collective is canceled, times out or gets a wrong argument at one rank, the group is revoked: what is pending at every rank, and what is asked
/// later, ends with an error that names the ranks that were lost or had not entered; `failure` has them as numbers. The code is `errc::canceled` where the
/// caller's own token stopped it, that of the loss (`errc::peer_lost`), or `group_errc::revoked`. Some ranks may have ended the collective well. `shrink` makes a
/// group of those that are left. Buffers of a failed collective have unspecified contents.
///
/// Copies are of the same group. Only for the thread of its scheduler; a group may outlive its job, and ends with `errc::closed` then.
class group {
public:
    /// Of nothing: collectives end with `errc::invalid_argument`.
    group() noexcept = default;
    /// For the toolkit: `join_job` and `split`.
    explicit group(detail::counted_ptr<detail::group_state> of) noexcept : state_(std::move(of)) {}

    /// Whether it is a group.
    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(state_); }
    /// This rank, from 0.
    [[nodiscard]] unsigned rank() const { return state().rank(); }
    /// How many ranks there are.
    [[nodiscard]] unsigned size() const { return state().size(); }
    /// The rank in the job of a rank of this group. Throws `errc::invalid_argument` for a rank that there is not.
    [[nodiscard]] unsigned rank_in_job(unsigned rank) const {
        if (rank >= size()) [[unlikely]]
            detail::throw_error(errc::invalid_argument, "group: there is no such rank");
        return state().members()[rank];
    }
    /// Why the group was revoked; nothing while it can be used.
    [[nodiscard]] const std::optional<group_failure>& failure() const { return state().failure(); }
    /// Which algorithm carries which length here, as a table.
    [[nodiscard]] std::string explain() const;
    /// From now on algorithms are chosen by `Collectives`, a `collectives<...>`, at every rank alike.
    template <class Collectives>
    void use() {
        state().choose_by(&Collectives::choose);
    }

    /// Awaitable.
    /// Completes: when every rank has called it.
    /// Buffers: none.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: at any time; the group is revoked, after at most 100 ms in which the others are asked whether they had entered it.
    /// Example:
    ///     co_await g.barrier();
    [[nodiscard]] task<> barrier() const {
        detail::collective_call call;
        call.kind = collective_kind::barrier;
        return run(call);
    }

    /// Awaitable.
    /// Completes: when this rank has the root's elements, or, at the root, when they are on their way.
    /// Buffers: `x` is read at the root, and written at the others.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.broadcast(x, rc::root{0});
    template <detail::elements_to_write X>
    [[nodiscard]] task<> broadcast(X&& x, root from) const {
        detail::collective_call call = of<X>(collective_kind::broadcast);
        call.root = from.rank;
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(x);
        return run(call);
    }

    /// Awaitable.
    /// Completes: when this rank has its block: `mine.size()` elements, the same number at every rank.
    /// Buffers: `all` is read at the root, `size() * mine.size()` elements; at the others it may be empty.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.scatter(all, mine, rc::root{0});
    template <detail::elements_to_read All, detail::elements_to_write Mine>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> scatter(All&& all, Mine&& mine, root from) const {
        detail::collective_call call = of<All>(collective_kind::scatter);
        call.root = from.rank;
        call.in = detail::read_from(all);
        call.out = detail::write_to(mine);
        call.bytes = bytes_of_row(mine);
        call.in_blocks.each = call.bytes;
        if (rank() == from.rank) need(std::ranges::size(all), size() * std::ranges::size(mine), "scatter");
        return run(call);
    }
    /// As `scatter`, with blocks of `counts[r]` elements for rank `r`, which only the root has to know. `mine` has this rank's.
    template <detail::elements_to_read All, detail::elements_to_write Mine>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> scatterv(All&& all, std::span<const std::size_t> counts, Mine&& mine,
                                  root from) const {
        detail::collective_call call = of<All>(collective_kind::scatter);
        call.root = from.rank;
        call.in = detail::read_from(all);
        call.out = detail::write_to(mine);
        call.bytes = bytes_of_row(mine);
        call.uneven = true;
        if (rank() == from.rank) {
            need_counts(counts, std::ranges::size(all), "scatterv");
            need(std::ranges::size(mine), counts[rank()], "scatterv");
            call.in_counts = counts;
        }
        return run(call);
    }

    /// Awaitable.
    /// Completes: at the root when it has all blocks; at the others when theirs is on its way.
    /// Buffers: `mine` has the same number of elements at every rank; `all` is written at the root, `size() * mine.size()` elements, in the
    ///     order of ranks; at the others it may be empty.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.gather(mine, all, rc::root{0});
    template <detail::elements_to_read Mine, detail::elements_to_write All>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> gather(Mine&& mine, All&& all, root to) const {
        detail::collective_call call = of<All>(collective_kind::gather);
        call.root = to.rank;
        call.in = detail::read_from(mine);
        call.out = detail::write_to(all);
        call.bytes = bytes_of_row(mine);
        call.out_blocks.each = call.bytes;
        if (rank() == to.rank) need(std::ranges::size(all), size() * std::ranges::size(mine), "gather");
        return run(call);
    }
    /// As `gather`, with blocks of `counts[r]` elements of rank `r`, which only the root has to know.
    template <detail::elements_to_read Mine, detail::elements_to_write All>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> gatherv(Mine&& mine, All&& all, std::span<const std::size_t> counts, root to) const {
        detail::collective_call call = of<All>(collective_kind::gather);
        call.root = to.rank;
        call.in = detail::read_from(mine);
        call.out = detail::write_to(all);
        call.bytes = bytes_of_row(mine);
        call.uneven = true;
        if (rank() == to.rank) {
            need_counts(counts, std::ranges::size(all), "gatherv");
            need(std::ranges::size(mine), counts[rank()], "gatherv");
            call.out_counts = counts;
        }
        return run(call);
    }

    /// Awaitable.
    /// Completes: when this rank has all blocks, in the order of ranks.
    /// Buffers: `mine` has the same number of elements at every rank; `all` is written, `size() * mine.size()` elements.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.allgather(mine, all);
    template <detail::elements_to_read Mine, detail::elements_to_write All>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> allgather(Mine&& mine, All&& all) const {
        need(std::ranges::size(all), size() * std::ranges::size(mine), "allgather");
        return all_blocks(detail::read_from(mine), bytes_of_row(mine), all, {});
    }
    /// As above; this rank's block is in its place already.
    template <detail::elements_to_write All>
    [[nodiscard]] task<> allgather(in_place_t, All&& all) const {
        need(std::ranges::size(all), std::ranges::size(all) / size() * size(), "allgather");
        return all_blocks(nullptr, bytes_of_row(all) / size(), all, {});
    }
    /// As `allgather`, with blocks of `counts[r]` elements of rank `r`, which every rank knows.
    template <detail::elements_to_read Mine, detail::elements_to_write All>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> allgatherv(Mine&& mine, All&& all, std::span<const std::size_t> counts) const {
        need_counts(counts, std::ranges::size(all), "allgatherv");
        need(std::ranges::size(mine), counts[rank()], "allgatherv");
        return all_blocks(detail::read_from(mine), bytes_of_row(mine), all, counts);
    }

    /// Awaitable.
    /// Completes: when this rank has a block of each other rank, and its own are on their way.
    /// Buffers: both have the same number of elements, a multiple of `size()`: a block for each rank, and of each, in their order.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.alltoall(out, in);
    template <detail::elements_to_read Out, detail::elements_to_write In>
        requires detail::same_elements<Out, In>
    [[nodiscard]] task<> alltoall(Out&& out, In&& in) const {
        need(std::ranges::size(in), std::ranges::size(out), "alltoall");
        need(std::ranges::size(in), std::ranges::size(in) / size() * size(), "alltoall");
        detail::collective_call call = of<Out>(collective_kind::alltoall);
        call.in = detail::read_from(out);
        call.out = detail::write_to(in);
        call.bytes = bytes_of_row(out) / size();
        call.in_blocks.each = call.out_blocks.each = call.bytes;
        return run(call);
    }
    /// As above; what is received takes the place of what was sent.
    template <detail::elements_to_write X>
    [[nodiscard]] task<> alltoall(in_place_t, X&& x) const {
        need(std::ranges::size(x), std::ranges::size(x) / size() * size(), "alltoall");
        detail::collective_call call = of<X>(collective_kind::alltoall);
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(x) / size();
        call.in_blocks.each = call.out_blocks.each = call.bytes;
        return run(call);
    }
    /// As `alltoall`, with `out_counts[r]` elements for rank `r`, and `in_counts[r]` of it, in the order of ranks.
    template <detail::elements_to_read Out, detail::elements_to_write In>
        requires detail::same_elements<Out, In>
    [[nodiscard]] task<> alltoallv(Out&& out, std::span<const std::size_t> out_counts, In&& in,
                                   std::span<const std::size_t> in_counts) const {
        need_counts(out_counts, std::ranges::size(out), "alltoallv");
        need_counts(in_counts, std::ranges::size(in), "alltoallv");
        need(out_counts[rank()], in_counts[rank()], "alltoallv");
        detail::collective_call call = of<Out>(collective_kind::alltoall);
        call.in = detail::read_from(out);
        call.out = detail::write_to(in);
        call.uneven = true;
        call.in_counts = out_counts;
        call.out_counts = in_counts;
        return run(call);
    }

    /// Awaitable.
    /// Completes: at the root when it has the result of all ranks' elements, at the others when theirs are on their way.
    /// Buffers: `mine` has the same number of elements at every rank; `x` is written at the root, and may be empty at the others.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.reduce(mine, x, std::plus<>{}, rc::root{0});
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op, class... Options>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce(Mine&& mine, X&& x, Op op, root to, Options... options) const {
        detail::collective_call call = with<X>(collective_kind::reduce, op, options...);
        call.root = to.rank;
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(mine);
        if (rank() == to.rank) need(std::ranges::size(x), std::ranges::size(mine), "reduce");
        return run(call);
    }
    /// As above; every rank's elements are in `x`, and the result at the root, too. At the others `x` is as it was.
    template <detail::elements_to_write X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce(in_place_t, X&& x, Op op, root to, Options... options) const {
        detail::collective_call call = with<X>(collective_kind::reduce, op, options...);
        call.root = to.rank;
        call.in = rank() == to.rank ? nullptr : detail::read_from(x);
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(x);
        return run(call);
    }

    /// Awaitable.
    /// Completes: when this rank has the result of all ranks' elements.
    /// Buffers: both have the same number of elements, the same at every rank.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.allreduce(mine, x, std::plus<>{});
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op, class... Options>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> allreduce(Mine&& mine, X&& x, Op op, Options... options) const {
        need(std::ranges::size(x), std::ranges::size(mine), "allreduce");
        detail::collective_call call = with<X>(collective_kind::allreduce, op, options...);
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(x);
        return run(call);
    }
    /// As above; this rank's elements are in `x`.
    template <detail::elements_to_write X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> allreduce(in_place_t, X&& x, Op op, Options... options) const {
        detail::collective_call call = with<X>(collective_kind::allreduce, op, options...);
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(x);
        return run(call);
    }

    /// Awaitable.
    /// Completes: when this rank has its block of the result of all ranks' elements.
    /// Buffers: `mine` has `size() * x.size()` elements: a block for each rank, in their order.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.reduce_scatter(mine, x, std::plus<>{});
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op, class... Options>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce_scatter(Mine&& mine, X&& x, Op op, Options... options) const {
        need(std::ranges::size(mine), size() * std::ranges::size(x), "reduce_scatter");
        detail::collective_call call = with<X>(collective_kind::reduce_scatter, op, options...);
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = call.in_blocks.each = bytes_of_row(x);
        return run(call);
    }
    /// As above, with blocks of `counts[r]` elements for rank `r`, which every rank knows.
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op, class... Options>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce_scatterv(Mine&& mine, std::span<const std::size_t> counts, X&& x, Op op,
                                         Options... options) const {
        need_counts(counts, std::ranges::size(mine), "reduce_scatterv");
        need(std::ranges::size(x), counts[rank()], "reduce_scatterv");
        detail::collective_call call = with<X>(collective_kind::reduce_scatter, op, options...);
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(x);
        call.uneven = true;
        call.in_counts = counts;
        return run(call);
    }

    /// Awaitable.
    /// Completes: when this rank has the result of the elements of the ranks up to it, itself included.
    /// Buffers: both have the same number of elements, the same at every rank. They may be the same.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.scan(mine, x, std::plus<>{});
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> scan(Mine&& mine, X&& x, Op op) const {
        return prefix(collective_kind::scan, mine, x, op);
    }
    /// As `scan`, itself not included. What rank 0 has in `x` is not specified.
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> exscan(Mine&& mine, X&& x, Op op) const {
        return prefix(collective_kind::exscan, mine, x, op);
    }

    /// Awaitable.
    /// Ends with the group of the ranks that gave the same color, in the order of their keys, and of their ranks where those are equal.
    /// With `no_color`: with no group.
    /// Completes: when every rank of this group has called it.
    /// Buffers: none.
    /// Concurrency: as described for the class; several of different groups run at a time.
    /// Errors: as described for the class; `errc::no_resources` when the first rank of the group has led a million of them.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     rc::group rows = co_await g.split(rank / columns, rank % columns);
    [[nodiscard]] task<group> split(std::int64_t color, std::int64_t key = 0) const;

    /// Awaitable.
    /// Ends with a group of the ranks that are left, in the order that they had. Revokes this group.
    /// Completes: when every rank that is left has called it. A rank that is lost meanwhile is left out.
    /// Buffers: none.
    /// Concurrency: once a group.
    /// Errors: `group_errc::not_member` where the others have taken this rank for lost.
    /// Cancellation: at any time; the others then wait for this rank until it is lost, or calls it again.
    /// Example:
    ///     rc::group left = co_await g.shrink();
    [[nodiscard]] task<group> shrink() const;

private:
    [[nodiscard]] detail::group_state& state() const {
        if (!state_) [[unlikely]]
            detail::throw_error(errc::invalid_argument, "group: it was default-constructed or moved from");
        return *state_;
    }
    [[nodiscard]] task<> run(const detail::collective_call& call) const {
        return detail::run_collective(state_, call);
    }
    template <class R>
    [[nodiscard]] static std::size_t bytes_of_row(const R& row) noexcept {
        return std::ranges::size(row) * sizeof(detail::element_t<R>);
    }
    template <class R>
    [[nodiscard]] static detail::collective_call of(collective_kind kind) noexcept {
        detail::collective_call call;
        call.kind = kind;
        call.element = sizeof(detail::element_t<R>);
        call.type = detail::type_number<detail::element_t<R>, void>();
        return call;
    }
    template <class R, class Op, class... Options>
    [[nodiscard]] static detail::collective_call with(collective_kind kind, const Op& op,
                                                      Options...) noexcept {
        static_assert(
            std::is_trivially_copyable_v<Op> && sizeof(Op) <= sizeof(detail::operation_room) &&
                alignof(Op) <= alignof(detail::operation_room),
            "an operation of a reduction is trivially copyable and has at most 32 bytes; a larger one "
            "is referred to by a lambda with a reference");
        static_assert((... && std::is_same_v<Options, reproducible_t>), "the only option is reproducible");
        using element = detail::element_t<R>;
        static_assert(alignof(element) <= alignof(std::max_align_t),
                      "elements of a reduction need no more alignment than memory from the heap has");
        detail::collective_call call = of<R>(kind);
        call.type = detail::type_number<element, Op>();
        call.keep(detail::make_reduction<element>(op), &op, sizeof(Op));
        call.reproducible = sizeof...(Options) != 0;
        return call;
    }
    template <class Mine, class X, class Op>
    [[nodiscard]] task<> prefix(collective_kind kind, const Mine& mine, X& x, const Op& op) const {
        need(std::ranges::size(x), std::ranges::size(mine), "scan");
        detail::collective_call call = with<X>(kind, op);
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = bytes_of_row(x);
        return run(call);
    }
    template <class All>
    [[nodiscard]] task<> all_blocks(const std::byte* mine, std::size_t each, All& all,
                                    std::span<const std::size_t> counts) const {
        detail::collective_call call = of<All>(collective_kind::allgather);
        call.in = mine;
        call.out = detail::write_to(all);
        call.bytes = each;
        call.out_blocks.each = each;
        call.uneven = !counts.empty();
        call.out_counts = counts;
        return run(call);
    }
    void need(std::size_t is, std::size_t wanted, const char* what) const;
    void need_counts(std::span<const std::size_t> counts, std::size_t elements, const char* what) const;

    detail::counted_ptr<detail::group_state> state_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/group.ipp>
#endif
