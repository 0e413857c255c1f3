// Algorithms of collectives: what goes from all ranks to all, unreduced.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <bit>

namespace rdmacoro::detail {

// ---- allgather: this rank's block is in its place

RDMACORO_DECL task<> ring_allgather(collective& c) {
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    for (unsigned step = 0; step + 1 < size; ++step) {
        send_step out(c, next, c.block((c.rank() + size - step) % size));
        receive_step in(c, before, c.block((before + size - step) % size));
        co_await out;
        co_await in;
        c.check();
    }
}

/// Around the ring in both directions: half as many steps.
RDMACORO_DECL task<> double_ring_allgather(collective& c) {
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    for (unsigned step = 0; step < size / 2; ++step) {
        const bool both = 2 * (step + 1) < size;  // the block of the rank opposite comes by one of the ways
        send_step out(c, next, c.block((c.rank() + size - step) % size));
        std::optional<send_step> back;
        if (both) back.emplace(c, before, c.block((c.rank() + step) % size));
        receive_step in(c, before, c.block((before + size - step) % size));
        std::optional<receive_step> from_next;
        if (both) from_next.emplace(c, next, c.block((next + step) % size));
        co_await out;
        if (back) co_await *back;
        co_await in;
        if (from_next) co_await *from_next;
        c.check();
    }
}

/// Of a number of ranks that is no power of two some give their block to the next rank first, and get all from it.
RDMACORO_DECL task<> doubling_allgather(collective& c) {
    const folded fold(c);
    const in_bytes all = c.blocks(0, c.size() - 1);
    if (fold.waits) {
        send_step out(c, c.rank() + 1, c.block(c.rank()));
        co_await out;
        receive_step in(c, c.rank() + 1, all);
        co_await in;
        c.check();
        co_return;
    }
    if (fold.takes) {
        receive_step in(c, c.rank() - 1, c.block(c.rank() - 1));
        co_await in;
        c.check();
    }
    for (unsigned bit = 1; bit < fold.power; bit *= 2) {
        const unsigned other = fold.number ^ bit;
        const unsigned mine = fold.number & ~(bit - 1);
        const unsigned theirs = other & ~(bit - 1);
        const unsigned with = fold.rank_of(other);
        send_step out(c, with, c.blocks(fold.first_of(mine), fold.rank_of(mine + bit - 1)));
        receive_step in(c, with, c.blocks(fold.first_of(theirs), fold.rank_of(theirs + bit - 1)));
        co_await out;
        co_await in;
        c.check();
    }
    if (fold.takes) {
        send_step out(c, c.rank() - 1, all);
        co_await out;
        c.check();
    }
}

/// Blocks of one length, any number of ranks: in step k a rank gets what the one 2^k behind it has. Its own block is the first one until the
/// end, when all are put in their places.
RDMACORO_DECL task<> bruck_allgather(collective& c) {
    const unsigned size = c.size();
    const std::size_t each = c.block(0).size();
    const collective::scratch memory = c.take_scratch(size * each);
    const in_bytes all = memory.bytes();
    co_await c.copying(all.first(each), c.block(c.rank()));
    for (unsigned distance = 1; distance < size; distance *= 2) {
        const std::size_t count = std::min(distance, size - distance) * each;
        send_step out(c, (c.rank() + size - distance) % size, all.first(count));
        receive_step in(c, (c.rank() + distance) % size, all.subspan(distance * each, count));
        co_await out;
        co_await in;
        c.check();
    }
    const std::size_t before_wrap = (size - c.rank()) * each;
    if (each != 0) {
        co_await c.copying(c.blocks(c.rank(), size - 1), all.first(before_wrap));
        if (c.rank() != 0) co_await c.copying(c.blocks(0, c.rank() - 1), all.subspan(before_wrap));
    }
}

/// To rank 0, and from there to all.
RDMACORO_DECL task<> gather_broadcast_allgather(collective& c, step_algorithm gather,
                                                step_algorithm broadcast) {
    collective_call call = step_of(c, collective_kind::gather);
    call.out = c.rank() == 0 ? c.call().out : c.block(c.rank()).data();
    call.out_blocks = c.call().out_blocks;
    call.bytes = c.block(c.rank()).size();
    {
        collective step(c, {}, call);
        co_await gather(step);
    }
    const in_bytes whole = c.blocks(0, c.size() - 1);
    call = step_of(c, collective_kind::broadcast);
    call.out = whole.data();
    call.bytes = whole.size();
    collective step(c, {}, call);
    co_await broadcast(step);
}

RDMACORO_DECL task<> overlapped_flat_allgather(collective& c) {
    const unsigned size = c.size();
    transfer_list<receive_step> ins(c, size);
    transfer_list<send_step> outs(c, size);
    for (unsigned step = 1; step < size; ++step) {
        const unsigned from = (c.rank() + size - step) % size;
        ins.begin(c, from, c.block(from));
    }
    for (unsigned step = 1; step < size; ++step) outs.begin(c, (c.rank() + step) % size, c.block(c.rank()));
    for (std::size_t at = 0; at < outs.count(); ++at) co_await outs[at];
    for (std::size_t at = 0; at < ins.count(); ++at) co_await ins[at];
    c.check();
}

// ---- alltoall

RDMACORO_DECL task<> overlapped_flat_alltoall(collective& c) {
    const unsigned size = c.size();
    transfer_list<receive_step> ins(c, size);
    transfer_list<send_step> outs(c, size);
    for (unsigned step = 1; step < size; ++step) {
        const unsigned from = (c.rank() + size - step) % size;
        ins.begin(c, from, c.block(from));
    }
    for (unsigned step = 1; step < size; ++step) {
        const unsigned to = (c.rank() + step) % size;
        outs.begin(c, to, c.given(to));
    }
    co_await c.placing_own();
    for (std::size_t at = 0; at < outs.count(); ++at) co_await outs[at];
    for (std::size_t at = 0; at < ins.count(); ++at) co_await ins[at];
    c.check();
}

/// One partner at a time.
RDMACORO_DECL task<> pairwise_alltoall(collective& c) {
    const unsigned size = c.size();
    const bool power_of_two = std::has_single_bit(size);
    for (unsigned step = 1; step < size; ++step) {
        const unsigned to = power_of_two ? c.rank() ^ step : (c.rank() + step) % size;
        const unsigned from = power_of_two ? to : (c.rank() + size - step) % size;
        send_step out(c, to, c.given(to));
        receive_step in(c, from, c.block(from));
        if (step == 1) co_await c.placing_own();
        co_await out;
        co_await in;
        c.check();
    }
}

/// Blocks of one length, in as many steps as the distance between ranks has bits: in step k those blocks go 2^k ranks on that
/// have that bit in the distance to their rank.
RDMACORO_DECL task<> bruck_alltoall(collective& c) {
    const unsigned size = c.size();
    const std::size_t each = c.block(0).size();
    const std::size_t most = (std::size_t{size} + 1) / 2 * each;
    const collective::scratch memory = c.take_scratch(size * each);
    const collective::scratch packed = c.take_scratch(std::max(most, each));
    const collective::scratch got = c.take_scratch(std::max(most, each));
    // Place d has the block of the rank d behind this one.
    const in_bytes places = memory.bytes();
    for (unsigned distance = 0; distance < size; ++distance)
        co_await c.copying(block_at(places, each, distance), c.given((c.rank() + distance) % size));
    for (unsigned bit = 1; bit < size; bit *= 2) {
        std::size_t bytes = 0;
        for (unsigned distance = bit; distance < size; ++distance) {
            if ((distance & bit) == 0) continue;
            co_await c.copying(packed.bytes().subspan(bytes, each), block_at(places, each, distance));
            bytes += each;
        }
        send_step out(c, (c.rank() + bit) % size, packed.bytes().first(bytes));
        receive_step in(c, (c.rank() + size - bit) % size, got.bytes().first(bytes));
        co_await out;
        co_await in;
        c.check();
        bytes = 0;
        for (unsigned distance = bit; distance < size; ++distance) {
            if ((distance & bit) == 0) continue;
            co_await c.copying(block_at(places, each, distance), got.bytes().subspan(bytes, each));
            bytes += each;
        }
    }
    for (unsigned distance = 0; distance < size; ++distance)
        co_await c.copying(c.block((c.rank() + size - distance) % size), block_at(places, each, distance));
}

}  // namespace rdmacoro::detail
