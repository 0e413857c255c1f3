// group: collectives of ranks as awaitables.
#pragma once

#include <rdmacoro/service/collective_options.hpp>
#include <rdmacoro/service/collectives.hpp>
#include <rdmacoro/service/detail/group_base.hpp>
#include <rdmacoro/service/detail/group_calls.hpp>
#include <rdmacoro/service/detail/group_elements.hpp>
#include <rdmacoro/service/group_failure.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro {

/// Ranks that do collectives together. Each rank calls the same collectives of a group in the same order; those of different groups, and several
/// of one group that were begun in the same order, run at a time. Their messages travel over connections of their own: a `recv` of the user's sees none of them.
///
/// Contributions and results are ranges of trivially copyable elements in a row (vectors, arrays, spans), or blocks of them at equal distances
/// (`strided`), in their order; these and counts of blocks are borrowed until the collective ends. Behind them a call may have options: `use<...>`, `algorithm_named`, `reproducible`. An
/// operation is a function object of at most 32 bytes that is trivially copyable; see `is_commutative` and `is_associative` for its order. Every rank gives the
/// same lengths, roots and types; with `NDEBUG` undefined where the toolkit's bodies are compiled, or `RDMACORO_CHECK_COLLECTIVES=1` for all ranks, they compare them first, and all end with
/// `group_errc::mismatch` and the ranks that differ.
///
/// What a rank gives and what it gets have no memory in common, or are the same, which is as `in_place`; a block of this rank may lie among all where it belongs.
///
/// Errors. Lengths and counts that do not fit each other, and memory of both sides that overlaps in part, are thrown by the call itself, a wrong root and a wrong name of an algorithm where it is
/// awaited; all as `errc::invalid_argument`. When a rank is lost, or a collective is canceled, times out or gets a wrong argument at one rank, the group is revoked: what is pending at every rank, and what is asked
/// later, ends with an error that names the ranks that were lost or had not entered; `failure` has them as numbers. The code is `errc::canceled` where the
/// caller's own token stopped it, that of the loss (`errc::peer_lost`; `errc::closed` where the rank has left in good order without entering; `errc::protocol_violation`), or `group_errc::revoked`. Some ranks may have ended the collective well. `shrink` makes a
/// group of those that are left. Buffers of a failed collective have unspecified contents.
///
/// Copies are of the same group. Only for the thread of its scheduler; a group may outlive its job, and goes on.
class group : private detail::group_base {
public:
    /// Of nothing: collectives end with `errc::invalid_argument`.
    group() noexcept = default;
    /// For the toolkit: `join_job` and `split`.
    explicit group(detail::counted_ptr<detail::group_state> of) noexcept : group_base(std::move(of)) {}

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
    /// Cancellation: at any time; the group is revoked, after at most 100 ms, or 600 ms where a connection is missing, in which the others are asked whether they had entered it.
    /// Example:
    ///     co_await g.barrier();
    template <class... Options>
    [[nodiscard]] task<> barrier(Options... options) const {
        return run(detail::call_of<collective_kind::barrier, std::span<std::byte>>(options...));
    }

    /// Awaitable.
    /// Completes: when this rank has the root's elements, or, at the root, when they are on their way.
    /// Buffers: `x` is read at the root, and written at the others.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.broadcast(x, rc::root{0});
    template <detail::elements_to_write X, class... Options>
    [[nodiscard]] task<> broadcast(X&& x, root from, Options... options) const {
        detail::collective_call call = detail::call_of<collective_kind::broadcast, X>(options...);
        call.root = from.rank;
        call.out = detail::write_to(x);
        call.bytes = detail::bytes_of_row(x);
        return run(call, in_place, x);
    }

    /// Awaitable.
    /// Completes: when this rank has its block: `mine.size()` elements, the same number at every rank.
    /// Buffers: `all` is read at the root, `size() * mine.size()` elements; at the others it may be empty.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.scatter(all, mine, rc::root{0});
    template <detail::elements_to_read All, detail::elements_to_write Mine, class... Options>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> scatter(All&& all, Mine&& mine, root from, Options... options) const {
        detail::collective_call call = detail::call_of<collective_kind::scatter, All>(options...);
        call.root = from.rank;
        call.in = detail::read_from(all);
        call.out = detail::write_to(mine);
        call.bytes = detail::bytes_of_row(mine);
        call.in_blocks.each = call.bytes;
        if (rank() == from.rank)
            need(detail::elements_in(all), size() * detail::elements_in(mine), "scatter");
        return run(call, all, mine);
    }
    /// As `scatter`, with blocks of `counts[r]` elements for rank `r`, which only the root has to know. `mine` has this rank's.
    template <detail::elements_to_read All, detail::elements_to_write Mine, class... Options>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> scatterv(All&& all, detail::block_counts counts, Mine&& mine, root from,
                                  Options... options) const {
        detail::collective_call call = detail::call_of<collective_kind::scatter, All>(options...);
        call.root = from.rank;
        call.in = detail::read_from(all);
        call.out = detail::write_to(mine);
        call.bytes = detail::bytes_of_row(mine);
        call.uneven = true;
        if (rank() == from.rank) {
            need_counts(counts, detail::elements_in(all), "scatterv");
            need(detail::elements_in(mine), counts[rank()], "scatterv");
            call.in_counts = counts;
        }
        call.root_knows = true;
        return run(call, all, mine);
    }
    /// As `scatter`; `x` is all blocks at the root, where its own stays in its place, and this rank's block at the others.
    template <detail::row_in_place X, class... Options>
    [[nodiscard]] task<> scatter(in_place_t, X&& x, root from, Options... options) const {
        need_blocks(x, rank() == from.rank, "scatter");
        detail::collective_call call = detail::blocks_call<collective_kind::scatter, X>(
            x, rank() == from.rank ? size() : 0, rank(), {}, options...);
        call.root = from.rank;
        call.in_blocks.each = call.bytes;
        return run(call, x, x);
    }
    /// The same with blocks of `counts[r]` elements for rank `r`, which only the root has to know.
    template <detail::row_in_place X, class... Options>
    [[nodiscard]] task<> scatterv(in_place_t, X&& x, detail::block_counts counts, root from,
                                  Options... options) const {
        if (rank() == from.rank) need_counts(counts, detail::elements_in(x), "scatterv");
        detail::collective_call call = detail::blocks_call<collective_kind::scatter, X>(
            x, rank() == from.rank ? size() : 0, rank(), counts, options...);
        call.root = from.rank;
        if (rank() == from.rank) call.in_counts = counts;
        call.uneven = call.root_knows = true;
        return run(call, x, x);
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
    template <detail::elements_to_read Mine, detail::elements_to_write All, class... Options>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> gather(Mine&& mine, All&& all, root to, Options... options) const {
        detail::collective_call call = detail::call_of<collective_kind::gather, All>(options...);
        call.root = to.rank;
        call.in = detail::read_from(mine);
        call.out = detail::write_to(all);
        call.bytes = detail::bytes_of_row(mine);
        call.out_blocks.each = call.bytes;
        if (rank() == to.rank) need(detail::elements_in(all), size() * detail::elements_in(mine), "gather");
        return run(call, mine, all);
    }
    /// As `gather`, with blocks of `counts[r]` elements of rank `r`, which only the root has to know.
    template <detail::elements_to_read Mine, detail::elements_to_write All, class... Options>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> gatherv(Mine&& mine, All&& all, detail::block_counts counts, root to,
                                 Options... options) const {
        detail::collective_call call = detail::call_of<collective_kind::gather, All>(options...);
        call.root = to.rank;
        call.in = detail::read_from(mine);
        call.out = detail::write_to(all);
        call.bytes = detail::bytes_of_row(mine);
        call.uneven = true;
        if (rank() == to.rank) {
            need_counts(counts, detail::elements_in(all), "gatherv");
            need(detail::elements_in(mine), counts[rank()], "gatherv");
            call.out_counts = counts;
        }
        call.root_knows = true;
        return run(call, mine, all);
    }
    /// As `gather`; `x` is all blocks at the root, with its own in its place already, and this rank's block at the others.
    template <detail::row_in_place X, class... Options>
    [[nodiscard]] task<> gather(in_place_t, X&& x, root to, Options... options) const {
        need_blocks(x, rank() == to.rank, "gather");
        detail::collective_call call = detail::blocks_call<collective_kind::gather, X>(
            x, rank() == to.rank ? size() : 0, rank(), {}, options...);
        call.root = to.rank;
        call.out_blocks.each = call.bytes;
        return run(call, x, x);
    }
    /// The same with blocks of `counts[r]` elements of rank `r`, which only the root has to know.
    template <detail::row_in_place X, class... Options>
    [[nodiscard]] task<> gatherv(in_place_t, X&& x, detail::block_counts counts, root to,
                                 Options... options) const {
        if (rank() == to.rank) need_counts(counts, detail::elements_in(x), "gatherv");
        detail::collective_call call = detail::blocks_call<collective_kind::gather, X>(
            x, rank() == to.rank ? size() : 0, rank(), counts, options...);
        call.root = to.rank;
        if (rank() == to.rank) call.out_counts = counts;
        call.uneven = call.root_knows = true;
        return run(call, x, x);
    }

    /// Awaitable.
    /// Completes: when this rank has all blocks, in the order of ranks.
    /// Buffers: `mine` has the same number of elements at every rank; `all` is written, `size() * mine.size()` elements.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.allgather(mine, all);
    template <detail::elements_to_read Mine, detail::elements_to_write All, class... Options>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> allgather(Mine&& mine, All&& all, Options... options) const {
        need(detail::elements_in(all), size() * detail::elements_in(mine), "allgather");
        return all_blocks(mine, detail::bytes_of_row(mine), all, {}, options...);
    }
    /// As above; this rank's block is in its place already.
    template <detail::elements_to_write All, class... Options>
    [[nodiscard]] task<> allgather(in_place_t, All&& all, Options... options) const {
        need(detail::elements_in(all), detail::elements_in(all) / size() * size(), "allgather");
        return all_blocks(in_place, detail::bytes_of_row(all) / size(), all, {}, options...);
    }
    /// As `allgather`, with blocks of `counts[r]` elements of rank `r`, which every rank knows.
    template <detail::elements_to_read Mine, detail::elements_to_write All, class... Options>
        requires detail::same_elements<All, Mine>
    [[nodiscard]] task<> allgatherv(Mine&& mine, All&& all, detail::block_counts counts,
                                    Options... options) const {
        need_counts(counts, detail::elements_in(all), "allgatherv");
        need(detail::elements_in(mine), counts[rank()], "allgatherv");
        return all_blocks(mine, detail::bytes_of_row(mine), all, counts, options...);
    }
    /// As above; this rank's block is in its place already.
    template <detail::elements_to_write All, class... Options>
    [[nodiscard]] task<> allgatherv(in_place_t, All&& all, detail::block_counts counts,
                                    Options... options) const {
        need_counts(counts, detail::elements_in(all), "allgatherv");
        return all_blocks(in_place, counts[rank()] * sizeof(detail::element_t<All>), all, counts, options...);
    }

    /// Awaitable.
    /// Completes: when this rank has a block of each other rank, and its own are on their way.
    /// Buffers: both have the same number of elements, a multiple of `size()`: a block for each rank, and of each, in their order.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.alltoall(out, in);
    template <detail::elements_to_read Out, detail::elements_to_write In, class... Options>
        requires detail::same_elements<Out, In>
    [[nodiscard]] task<> alltoall(Out&& out, In&& in, Options... options) const {
        need(detail::elements_in(in), detail::elements_in(out), "alltoall");
        need(detail::elements_in(in), detail::elements_in(in) / size() * size(), "alltoall");
        detail::collective_call call = detail::call_of<collective_kind::alltoall, Out>(options...);
        if (!detail::same_row(out, in)) call.in = detail::read_from(out);
        call.out = detail::write_to(in);
        call.bytes = detail::bytes_of_row(out) / size();
        call.in_blocks.each = call.out_blocks.each = call.bytes;
        return run(call, out, in);
    }
    /// As above; what is received takes the place of what was sent.
    template <detail::elements_to_write X, class... Options>
    [[nodiscard]] task<> alltoall(in_place_t, X&& x, Options... options) const {
        need(detail::elements_in(x), detail::elements_in(x) / size() * size(), "alltoall");
        detail::collective_call call = detail::call_of<collective_kind::alltoall, X>(options...);
        call.out = detail::write_to(x);
        call.bytes = detail::bytes_of_row(x) / size();
        call.in_blocks.each = call.out_blocks.each = call.bytes;
        return run(call, in_place, x);
    }
    /// As `alltoall`, with `out_counts[r]` elements for rank `r`, and `in_counts[r]` of it, in the order of ranks. Where both are the same row the
    /// counts are equal.
    template <detail::elements_to_read Out, detail::elements_to_write In, class... Options>
        requires detail::same_elements<Out, In>
    [[nodiscard]] task<> alltoallv(Out&& out, detail::block_counts out_counts, In&& in,
                                   detail::block_counts in_counts, Options... options) const {
        need_counts(out_counts, detail::elements_in(out), "alltoallv");
        need_counts(in_counts, detail::elements_in(in), "alltoallv");
        need(out_counts[rank()], in_counts[rank()], "alltoallv");
        detail::collective_call call = detail::call_of<collective_kind::alltoall, Out>(options...);
        if (!detail::same_row(out, in)) {
            call.in = detail::read_from(out);
        } else {
            need_same_counts(out_counts, in_counts, "alltoallv");
        }
        call.out = detail::write_to(in);
        call.uneven = true;
        call.in_counts = out_counts;
        call.out_counts = in_counts;
        return run(call, out, in);
    }
    /// In place: sends `counts[r]` elements to rank `r`, and receives as many from it, which overwrite them.
    template <detail::elements_to_write X, class... Options>
    [[nodiscard]] task<> alltoallv(in_place_t, X&& x, detail::block_counts counts, Options... options) const {
        need_counts(counts, detail::elements_in(x), "alltoallv");
        detail::collective_call call = detail::call_of<collective_kind::alltoall, X>(options...);
        call.out = detail::write_to(x);
        call.uneven = true;
        call.in_counts = call.out_counts = counts;
        return run(call, in_place, x);
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
        detail::collective_call call = detail::call_with<collective_kind::reduce, X>(op, options...);
        call.root = to.rank;
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = detail::bytes_of_row(mine);
        if (rank() == to.rank) need(detail::elements_in(x), detail::elements_in(mine), "reduce");
        return run(call, mine, x);
    }
    /// As above; every rank's elements are in `x`, and the result at the root, too. At the others `x` is as it was.
    template <detail::elements_to_write X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce(in_place_t, X&& x, Op op, root to, Options... options) const {
        detail::collective_call call = detail::call_with<collective_kind::reduce, X>(op, options...);
        call.root = to.rank;
        call.in = rank() == to.rank ? nullptr : detail::read_from(x);
        call.out = detail::write_to(x);
        call.bytes = detail::bytes_of_row(x);
        return run(call, x, x);
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
        need(detail::elements_in(x), detail::elements_in(mine), "allreduce");
        detail::collective_call call = detail::call_with<collective_kind::allreduce, X>(op, options...);
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = detail::bytes_of_row(x);
        return run(call, mine, x);
    }
    /// As above; this rank's elements are in `x`.
    template <detail::elements_to_write X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> allreduce(in_place_t, X&& x, Op op, Options... options) const {
        detail::collective_call call = detail::call_with<collective_kind::allreduce, X>(op, options...);
        call.out = detail::write_to(x);
        call.bytes = detail::bytes_of_row(x);
        return run(call, in_place, x);
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
        need(detail::elements_in(mine), size() * detail::elements_in(x), "reduce_scatter");
        detail::collective_call call = detail::call_with<collective_kind::reduce_scatter, X>(op, options...);
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = call.in_blocks.each = detail::bytes_of_row(x);
        return run(call, mine, x);
    }
    /// As above, with blocks of `counts[r]` elements for rank `r`, which every rank knows.
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op, class... Options>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce_scatterv(Mine&& mine, detail::block_counts counts, X&& x, Op op,
                                         Options... options) const {
        need_counts(counts, detail::elements_in(mine), "reduce_scatterv");
        need(detail::elements_in(x), counts[rank()], "reduce_scatterv");
        detail::collective_call call = detail::call_with<collective_kind::reduce_scatter, X>(op, options...);
        call.in = detail::read_from(mine);
        call.out = detail::write_to(x);
        call.bytes = detail::bytes_of_row(x);
        call.uneven = true;
        call.in_counts = counts;
        return run(call, mine, x);
    }
    /// As `reduce_scatter`; `x` has a block for each rank, and the result takes the place of this rank's. The others are as they were.
    template <detail::row_in_place X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce_scatter(in_place_t, X&& x, Op op, Options... options) const {
        need_blocks(x, true, "reduce_scatter");
        detail::collective_call call = detail::call_with<collective_kind::reduce_scatter, X>(op, options...);
        call.bytes = call.in_blocks.each = detail::bytes_of_row(x) / size();
        call.in = detail::read_from(x);
        call.out = detail::write_to(x) + rank() * call.bytes;
        return run(call, x, x);
    }
    /// The same with blocks of `counts[r]` elements for rank `r`, which every rank knows.
    template <detail::row_in_place X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> reduce_scatterv(in_place_t, X&& x, detail::block_counts counts, Op op,
                                         Options... options) const {
        need_counts(counts, detail::elements_in(x), "reduce_scatterv");
        detail::collective_call call = detail::call_with<collective_kind::reduce_scatter, X>(op, options...);
        call.bytes = counts[rank()] * call.element;
        call.in = detail::read_from(x);
        call.out = detail::write_to(x) + detail::elements_before(counts, rank()) * call.element;
        call.uneven = true;
        call.in_counts = counts;
        return run(call, x, x);
    }

    /// Awaitable.
    /// Completes: when this rank has the result of the elements of the ranks up to it, itself included.
    /// Buffers: both have the same number of elements, the same at every rank. They may be the same.
    /// Concurrency: as described for the class.
    /// Errors: as described for the class.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     co_await g.scan(mine, x, std::plus<>{});
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op, class... Options>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> scan(Mine&& mine, X&& x, Op op, Options... options) const {
        return prefix<collective_kind::scan>(mine, x, op, options...);
    }
    /// As above; this rank's elements are in `x`.
    template <detail::elements_to_write X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> scan(in_place_t, X&& x, Op op, Options... options) const {
        return prefix<collective_kind::scan>(in_place, x, op, options...);
    }
    /// As `scan`, itself not included. The content of rank 0's `x` is not specified.
    template <detail::elements_to_read Mine, detail::elements_to_write X, class Op, class... Options>
        requires detail::same_elements<Mine, X> && reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> exscan(Mine&& mine, X&& x, Op op, Options... options) const {
        return prefix<collective_kind::exscan>(mine, x, op, options...);
    }
    /// As above; this rank's elements are in `x`.
    template <detail::elements_to_write X, class Op, class... Options>
        requires reduces<Op, detail::element_t<X>>
    [[nodiscard]] task<> exscan(in_place_t, X&& x, Op op, Options... options) const {
        return prefix<collective_kind::exscan>(in_place, x, op, options...);
    }

    /// Awaitable.
    /// Ends with the group of the ranks that gave the same color, in the order of their keys, and of their ranks where those are equal.
    /// With `no_color`: with no group.
    /// Completes: when every rank of this group knows the groups. Where it fails at a rank, a group that others have with that rank is revoked.
    /// Buffers: none.
    /// Concurrency: as described for the class; several of different groups run at a time.
    /// Errors: as described for the class; `errc::no_resources` when the first rank of the group has led a million of them.
    /// Cancellation: as `barrier`.
    /// Example:
    ///     rc::group rows = co_await g.split(rank / columns, rank % columns);
    [[nodiscard]] task<group> split(std::int64_t color, std::int64_t key = 0) const;

    /// Awaitable.
    /// Ends with a group of the ranks that are left, in the order that they had. Revokes this group.
    /// Completes: when every rank that is left has called it. A rank that is lost meanwhile is left out, and so is one that has let
    ///     its last copy of the group go, and of two that have lost each other one.
    /// Buffers: none.
    /// Concurrency: once a group; again where it was canceled or has failed.
    /// Errors: `group_errc::not_member` where the others have taken this rank for lost; `errc::no_resources` when the rank that decides, the lowest
    ///     that is left, has led a million groups.
    /// Cancellation: at any time; the others then wait for this rank until it is lost, or calls it again.
    /// Example:
    ///     rc::group left = co_await g.shrink();
    [[nodiscard]] task<group> shrink() const;

private:
    [[nodiscard]] static task<group> split_of(group whole, std::int64_t color, std::int64_t key);
    [[nodiscard]] static task<group> shrink_of(group whole);
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/group.ipp>
#endif
