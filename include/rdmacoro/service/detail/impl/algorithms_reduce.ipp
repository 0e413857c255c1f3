// Algorithms of collectives: reductions with a result for all ranks, or a part of it.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <optional>

namespace rdmacoro::detail {

/// Each step exchanges all that two ranks have with all that they lack. Ranks stay in order, and every rank groups alike.
RDMACORO_DECL task<> doubling_allreduce(collective& c) {
    const folded fold(c);
    const in_bytes mine = c.data();
    if (fold.waits) {
        receive_step in(c, c.rank() + 1,
                        mine);  // of the result; posted before the part it replaces is on its way
        send_step out(c, c.rank() + 1, mine);
        co_await out;
        co_await in;
        c.check();
        co_return;
    }
    const collective::scratch memory = c.take_scratch(mine.size());
    const in_bytes other = memory.bytes();
    if (fold.takes) {
        receive_step in(c, c.rank() - 1, other);
        co_await in;
        c.check();
        c.combine(mine, other, true);
    }
    for (unsigned bit = 1; bit < fold.power; bit *= 2) {
        const unsigned with = fold.rank_of(fold.number ^ bit);
        send_step out(c, with, mine);
        receive_step in(c, with, other);
        co_await out;
        co_await in;
        c.check();
        c.combine(mine, other, with < c.rank());
    }
    if (fold.takes) {
        send_step out(c, c.rank() - 1, mine);
        co_await out;
        c.check();
    }
}

/// Halving, then doubling: each rank reduces a part, and gets the others.
RDMACORO_DECL task<> rabenseifner_allreduce(collective& c) {
    const folded fold(c);
    const in_bytes mine = c.data();
    if (fold.waits) {
        send_step out(c, c.rank() + 1, mine);
        co_await out;
        c.check();
        receive_step in(c, c.rank() + 1, mine);
        co_await in;
        c.check();
        co_return;
    }
    const collective::scratch memory = c.take_scratch(mine.size());
    if (fold.takes) {
        receive_step in(c, c.rank() - 1, memory.bytes());
        co_await in;
        c.check();
        c.combine(mine, memory.bytes(), true);
    }
    const element_parts parts{mine.size() / c.element(), c.element(), fold.power};
    // This rank is responsible for the parts `first` up to, not including, `last`.
    unsigned first = 0;
    unsigned last = fold.power;
    for (unsigned bit = fold.power / 2; bit != 0; bit /= 2) {
        const unsigned with = fold.rank_of(fold.number ^ bit);
        const unsigned middle = first + bit;
        const bool lower = (fold.number & bit) == 0;
        const in_bytes keeps = parts.of<in_bytes>(mine, lower ? first : middle, lower ? middle : last);
        const in_bytes gives = parts.of<in_bytes>(mine, lower ? middle : first, lower ? last : middle);
        const in_bytes other = memory.bytes().first(keeps.size());
        send_step out(c, with, gives);
        receive_step in(c, with, other);
        co_await out;
        co_await in;
        c.check();
        c.combine(keeps, other, with < c.rank());
        (lower ? last : first) = middle;
    }
    for (unsigned bit = 1; bit < fold.power; bit *= 2) {
        const unsigned with = fold.rank_of(fold.number ^ bit);
        const bool lower = (fold.number & bit) == 0;
        const unsigned gets = lower ? last : first - bit;
        send_step out(c, with, parts.of<out_bytes>(mine, first, last));
        receive_step in(c, with, parts.of<in_bytes>(mine, gets, gets + bit));
        co_await out;
        co_await in;
        c.check();
        (lower ? last : first) = lower ? last + bit : first - bit;
    }
    if (fold.takes) {
        send_step out(c, c.rank() - 1, mine);
        co_await out;
        c.check();
    }
}

/// Around the ring: in the end rank r has reduced part r + 1.
inline task<> reduce_around(collective& c, element_parts parts, in_bytes mine) {
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    const collective::scratch memory = c.take_scratch(parts.of<in_bytes>(mine, 0, 1).size());
    for (unsigned step = 0; step + 1 < size; ++step) {
        const unsigned gives = (c.rank() + size - step) % size;
        const unsigned gets = (before + size - step) % size;
        const in_bytes into = parts.of<in_bytes>(mine, gets, gets + 1);
        const in_bytes other = memory.bytes().first(into.size());
        send_step out(c, next, parts.of<out_bytes>(mine, gives, gives + 1));
        receive_step in(c, before, other);
        co_await out;
        co_await in;
        c.check();
        c.combine(into, other, true);
    }
}

RDMACORO_DECL task<> ring_allreduce(collective& c) {
    const element_parts parts = parts_of(c);
    co_await reduce_around(c, parts, c.data());
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    for (unsigned step = 0; step + 1 < size; ++step) {
        const unsigned gives = (c.rank() + 1 + size - step) % size;
        const unsigned gets = (c.rank() + size - step) % size;
        send_step out(c, next, parts.of<out_bytes>(c.data(), gives, gives + 1));
        receive_step in(c, before, parts.of<in_bytes>(c.data(), gets, gets + 1));
        co_await out;
        co_await in;
        c.check();
    }
}

RDMACORO_DECL task<> reduce_broadcast_allreduce(collective& c, step_algorithm reduce,
                                                step_algorithm broadcast) {
    co_await reduce(c);
    co_await broadcast(c);
}

/// The parts are reduced around the ring, and gathered at the root.
RDMACORO_DECL task<> ring_reduce(collective& c) {
    const element_parts parts = parts_of(c);
    co_await reduce_around(c, parts, c.data());
    const unsigned size = c.size();
    if (c.rank() != c.root()) {
        const unsigned mine = (c.rank() + 1) % size;
        send_step out(c, c.root(), parts.of<out_bytes>(c.data(), mine, mine + 1));
        co_await out;
        c.check();
        co_return;
    }
    transfer_list<receive_step> all(c, size);
    for (unsigned from = 0; from < size; ++from) {
        const unsigned theirs = (from + 1) % size;
        if (from != c.root()) all.begin(c, from, parts.of<in_bytes>(c.data(), theirs, theirs + 1));
    }
    for (std::size_t at = 0; at < all.count(); ++at) co_await all[at];
    c.check();
}

// ---- reduce_scatter: `own()` has this rank's contribution to its own block

/// A block goes around the ring to its rank, and each rank on the way adds to it.
RDMACORO_DECL task<> ring_reduce_scatter(collective& c) {
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    std::size_t longest = 0;
    for (unsigned at = 0; at < size; ++at) longest = std::max(longest, c.given(at).size());
    const collective::scratch first = c.take_scratch(longest);
    const collective::scratch second = c.take_scratch(longest);
    out_bytes held = c.given(before);
    in_bytes into = first.bytes();
    in_bytes spare = second.bytes();
    for (unsigned step = 0; step + 1 < size; ++step) {
        const unsigned gets = (before + 2 * size - step - 1) % size;
        const out_bytes mine = c.given(gets);
        const in_bytes sum = into.first(mine.size());
        send_step out(c, next, held);
        receive_step in(c, before, sum);
        co_await out;
        co_await in;
        c.check();
        c.combine(sum, mine, false);
        held = sum;
        std::swap(into, spare);
    }
    copy_bytes(c.own(), held);
}

/// Blocks of one length: in each step a rank gives half of what it is responsible for away.
RDMACORO_DECL task<> halving_reduce_scatter(collective& c) {
    const unsigned size = c.size();
    const std::size_t each = c.own().size();
    const collective::scratch sums = c.take_scratch(size * each);
    const collective::scratch other = c.take_scratch(size * each / 2);
    copy_bytes(sums.bytes(), c.given(0, size - 1));
    unsigned first = 0;
    unsigned last = size;
    for (unsigned bit = size / 2; bit != 0; bit /= 2) {
        const unsigned with = c.rank() ^ bit;
        const unsigned middle = first + bit;
        const bool lower = (c.rank() & bit) == 0;
        const in_bytes keeps = lower ? block_at(sums.bytes(), each, first, middle - first)
                                     : block_at(sums.bytes(), each, middle, last - middle);
        const in_bytes got = other.bytes().first(keeps.size());
        send_step out(c, with,
                      lower ? block_at(sums.bytes(), each, middle, last - middle)
                            : block_at(sums.bytes(), each, first, middle - first));
        receive_step in(c, with, got);
        co_await out;
        co_await in;
        c.check();
        c.combine(keeps, got, with < c.rank());
        (lower ? last : first) = middle;
    }
    copy_bytes(c.own(), block_at(sums.bytes(), each, c.rank()));
}

/// In step k a rank gives its contribution to the block of the rank k behind it.
RDMACORO_DECL task<> pairwise_reduce_scatter(collective& c) {
    const unsigned size = c.size();
    const collective::scratch memory = c.take_scratch(c.own().size());
    for (unsigned step = 1; step < size; ++step) {
        const unsigned to = (c.rank() + step) % size;
        send_step out(c, to, c.given(to));
        receive_step in(c, (c.rank() + size - step) % size, memory.bytes());
        co_await out;
        co_await in;
        c.check();
        c.combine(c.own(), memory.bytes(), true);
    }
}

/// All of it at rank 0 first.
RDMACORO_DECL task<> reduce_then_scatter(collective& c, step_algorithm reduce, step_algorithm scatter) {
    const std::size_t bytes = c.given(0, c.size() - 1).size();
    const collective::scratch sums = c.take_scratch(bytes);
    copy_bytes(sums.bytes(), c.given(0, c.size() - 1));
    {
        collective_call call = step_of(c, collective_kind::reduce);
        call.out = sums.data();
        call.bytes = bytes;
        collective step(c, {}, call);
        co_await reduce(step);
    }
    collective_call call = step_of(c, collective_kind::scatter);
    call.in = sums.data();
    call.in_blocks = c.call().in_blocks;
    call.out = c.call().out;
    call.bytes = c.own().size();
    if (c.rank() == 0) copy_bytes(c.own(), {sums.data() + call.in_blocks.offset(0), c.own().size()});
    collective step(c, {}, call);
    co_await scatter(step);
}

// ---- scans: `data()` has this rank's contribution

/// In step k a rank gets the result of the 2^k ranks up to the one 2^k before it.
RDMACORO_DECL task<> log_step_scan(collective& c) {
    const std::size_t bytes = c.data().size();
    const bool exclusive = c.kind() == collective_kind::exscan;
    // `sum`: of the ranks up to this one, included. `c.data()`: the result; of exscan nothing at rank 0.
    const collective::scratch partial = c.take_scratch(bytes);
    const collective::scratch other = c.take_scratch(bytes);
    const in_bytes sum = partial.bytes();
    copy_bytes(sum, c.data());
    bool any = false;
    for (unsigned distance = 1; distance < c.size(); distance *= 2) {
        std::optional<receive_step> in;
        std::optional<send_step> out;
        if (c.rank() >= distance) in.emplace(c, c.rank() - distance, other.bytes());
        if (c.rank() + distance < c.size()) out.emplace(c, c.rank() + distance, sum);
        if (out) co_await *out;
        if (in) co_await *in;
        c.check();
        if (!in) continue;
        if (exclusive) {
            if (any) {
                c.combine(c.data(), other.bytes(), true);
            } else {
                copy_bytes(c.data(), other.bytes());
            }
            any = true;
        }
        c.combine(sum, other.bytes(), true);
    }
    if (!exclusive) copy_bytes(c.data(), sum);
}

/// One rank after the other.
RDMACORO_DECL task<> flat_scan(collective& c) {
    const std::size_t bytes = c.data().size();
    const bool exclusive = c.kind() == collective_kind::exscan;
    const collective::scratch before = c.take_scratch(bytes);
    const collective::scratch sum = c.take_scratch(bytes);
    copy_bytes(sum.bytes(), c.data());
    if (c.rank() != 0) {
        receive_step in(c, c.rank() - 1, before.bytes());
        co_await in;
        c.check();
        c.combine(sum.bytes(), before.bytes(), true);
    }
    if (c.rank() + 1 < c.size()) {
        send_step out(c, c.rank() + 1, sum.bytes());
        co_await out;
        c.check();
    }
    if (!exclusive) {
        copy_bytes(c.data(), sum.bytes());
    } else if (c.rank() != 0) {
        copy_bytes(c.data(), before.bytes());
    }
}

}  // namespace rdmacoro::detail
