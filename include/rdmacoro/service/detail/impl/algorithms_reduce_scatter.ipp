// Algorithms of collectives: reductions with a block of the result for each rank.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>

namespace rdmacoro::detail {

/// A block goes around the ring to its rank, and each rank on the way adds to it.
RDMACORO_DECL task<> ring_reduce_scatter(collective& c) {
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    std::size_t longest = 0;
    for (unsigned at = 0; at < size; ++at) longest = std::max(longest, c.given(at).size());
    const collective::scratch first = c.take_scratch(longest);
    const collective::scratch second = c.take_scratch(longest);
    const collective::scratch room = c.take_scratch(longest);
    out_bytes held = c.given(before);
    in_bytes into = first.bytes();
    in_bytes spare = second.bytes();
    for (unsigned step = 0; step + 1 < size; ++step) {
        const unsigned gets = (before + 2 * size - step - 1) % size;
        const out_bytes mine = c.given(gets);
        // The last one is its own.
        const in_bytes sum = gets == c.rank() ? c.own() : into.first(mine.size());
        send_step out(c, next, held);
        combine_step in(c, before, sum, mine, room.bytes().first(mine.size()), true);
        co_await out;
        co_await in;
        c.check();
        held = sum;
        std::swap(into, spare);
    }
}

/// The blocks of the ranks that the numbers `first` up to, not including, `last` stand for, in memory that has all.
template <class Bytes>
[[nodiscard]] Bytes blocks_of_numbers(const collective& c, const folded& fold, Bytes whole, unsigned first,
                                      unsigned last) noexcept {
    const unsigned from = fold.first_of(first);
    const std::size_t skipped = from != 0 ? c.blocks_bytes(0, from - 1) : 0;
    return whole.subspan(skipped, c.blocks_bytes(from, fold.rank_of(last - 1)));
}

/// In each step a rank gives half of what it is responsible for away. Of a number of ranks that is no power of two some give all of theirs to
/// the next rank first.
RDMACORO_DECL task<> halving_reduce_scatter(collective& c) {
    const folded fold(c);
    const out_bytes all = c.given(0, c.size() - 1);
    if (fold.waits) {
        receive_step in(c, c.rank() + 1, c.own());
        send_step out(c, c.rank() + 1, all);
        co_await out;
        co_await in;
        c.check();
        co_return;
    }
    const collective::scratch memory = c.take_scratch(all.size());
    const collective::scratch room = c.take_scratch(all.size());
    const in_bytes sums = memory.bytes();
    out_bytes mine = all;  // from the first combination on, `sums`
    if (fold.takes) {
        combine_step in(c, c.rank() - 1, sums, mine, room.bytes(), true);
        co_await in;
        c.check();
        mine = sums;
    }
    unsigned first = 0;
    unsigned last = fold.power;
    for (unsigned bit = fold.power / 2; bit != 0; bit /= 2) {
        const unsigned with = fold.rank_of(fold.number ^ bit);
        const unsigned middle = first + bit;
        const bool lower = (fold.number & bit) == 0;
        const unsigned keeps_from = lower ? first : middle;
        const unsigned keeps_to = lower ? middle : last;
        send_step out(c, with,
                      blocks_of_numbers(c, fold, mine, lower ? middle : first, lower ? last : middle));
        combine_step in(c, with, blocks_of_numbers(c, fold, sums, keeps_from, keeps_to),
                        blocks_of_numbers(c, fold, mine, keeps_from, keeps_to),
                        blocks_of_numbers(c, fold, room.bytes(), keeps_from, keeps_to), with < c.rank());
        co_await out;
        co_await in;
        c.check();
        mine = sums;
        (lower ? last : first) = middle;
    }
    const in_bytes result = blocks_of_numbers(c, fold, sums, fold.number, fold.number + 1);
    co_await c.copying(c.own(), result.last(c.own().size()));
    if (fold.takes) {
        send_step out(c, c.rank() - 1, result.first(c.block_bytes(c.rank() - 1)));
        co_await out;
        c.check();
    }
}

/// In step k a rank gives its contribution to the block of the rank k behind it.
RDMACORO_DECL task<> pairwise_reduce_scatter(collective& c) {
    const unsigned size = c.size();
    const collective::scratch room = c.take_scratch(c.own().size());
    out_bytes mine = c.given(c.rank());
    for (unsigned step = 1; step < size; ++step) {
        const unsigned to = (c.rank() + step) % size;
        send_step out(c, to, c.given(to));
        combine_step in(c, (c.rank() + size - step) % size, c.own(), mine, room.bytes(), true);
        co_await out;
        co_await in;
        c.check();
        mine = c.own();
    }
}

/// All of it at rank 0 first.
RDMACORO_DECL task<> reduce_then_scatter(collective& c, step_algorithm reduce, step_algorithm scatter) {
    const out_bytes all = c.given(0, c.size() - 1);
    const collective::scratch sums = c.take_scratch(all.size());
    co_await c.copying(sums.bytes(), all);
    {
        collective_call call = step_of(c, collective_kind::reduce);
        call.out = sums.data();
        call.bytes = all.size();
        collective step(c, {}, call);
        co_await reduce(step);
    }
    collective_call call = step_of(c, collective_kind::scatter);
    call.in = sums.data();
    call.in_blocks = c.call().in_blocks;
    call.out = c.call().out;
    call.bytes = c.own().size();
    if (c.rank() == 0) co_await c.copying(c.own(), sums.bytes().first(c.own().size()));
    collective step(c, {}, call);
    co_await scatter(step);
}

}  // namespace rdmacoro::detail
