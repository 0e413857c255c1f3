// Algorithms of collectives: what goes from all ranks to one.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <optional>

namespace rdmacoro::detail {

// ---- gather

RDMACORO_DECL task<> flat_gather(collective& c) {
    if (c.rank() != c.root()) {
        send_step out(c, c.root(), c.own());
        co_await out;
        c.check();
        co_return;
    }
    for (unsigned from = 0; from < c.size(); ++from) {
        if (from == c.root()) continue;
        receive_step in(c, from, c.block(from));
        co_await in;
        c.check();
    }
}

RDMACORO_DECL task<> overlapped_flat_gather(collective& c) {
    if (c.rank() != c.root()) {
        send_step out(c, c.root(), c.own());
        co_await out;
        c.check();
        co_return;
    }
    transfer_list<receive_step> all(c, c.size());
    for (unsigned from = 0; from < c.size(); ++from) {
        if (from != c.root()) all.begin(c, from, c.block(from));
    }
    for (std::size_t at = 0; at < all.count(); ++at) co_await all[at];
    c.check();
}

/// Up a minimum spanning tree: a rank that is not the root gathers the blocks below it first. Where the root alone knows their lengths, these go
/// up the tree before, but to the root.
RDMACORO_DECL task<> spanning_tree_gather(collective& c) {
    const tree_path tree(c.rank(), c.size(), c.root());
    // The blocks that this rank will have gathered when it passes them on: the half that it was given to on the way down.
    unsigned first = 0;
    unsigned last = c.size() - 1;
    for (unsigned level = 0; level != tree.levels(); ++level) {
        if (tree[level].to != c.rank()) continue;
        const bool left = c.rank() <= tree[level].middle;
        first = left ? tree[level].left : tree[level].middle + 1;
        last = left ? tree[level].middle : tree[level].right;
        break;
    }
    const bool is_root = c.rank() == c.root();
    const bool learns = c.call().root_knows && !is_root;
    std::optional<block_lengths> lengths;
    if (learns) {
        lengths.emplace(c, first, last);
        lengths->set(c.rank(), c.own().size());
        for (unsigned level = tree.levels(); level-- != 0;) {
            const tree_level& at = tree[level];
            if (c.rank() == at.to) {
                if (at.from == c.root()) break;
                send_step out(c, at.from, lengths->of(first, last));
                co_await out;
                c.check();
                break;
            }
            if (c.rank() != at.from) continue;
            const bool from_left = at.to <= at.middle;
            receive_step in(
                c, at.to, lengths->of(from_left ? at.left : at.middle + 1, from_left ? at.middle : at.right));
            co_await in;
            c.check();
        }
        if (!lengths->fit(c.rank(), c.own().size())) c.wrong_length(c.rank(), c.own().size(), 0);
        c.check();
    }
    const block_row row(c, lengths);
    std::optional<collective::scratch> memory;
    in_bytes held = is_root ? (c.size() > 1 ? c.blocks(0, c.size() - 1) : in_bytes()) : c.own();
    if (!is_root && first != last) {
        memory.emplace(c.scratch_memory(), row.bytes(first, last));
        held = memory->bytes();
        co_await c.copying(row.part(held, first, c.rank(), c.rank()), c.own());
    }
    for (unsigned level = tree.levels(); level-- != 0;) {
        const tree_level& at = tree[level];
        if (c.rank() == at.to) {
            send_step out(c, at.from, held);
            co_await out;
            c.check();
            co_return;
        }
        if (c.rank() != at.from) continue;
        const bool from_left = at.to <= at.middle;
        receive_step in(
            c, at.to,
            row.part(held, first, from_left ? at.left : at.middle + 1, from_left ? at.middle : at.right));
        co_await in;
        c.check();
    }
}

// ---- reduce

/// In the order of the ranks, at the root.
RDMACORO_DECL task<> flat_reduce(collective& c) {
    if (c.rank() != c.root()) {
        send_step out(c, c.root(), c.contribution());
        co_await out;
        c.check();
        co_return;
    }
    // (... (0 op 1) op 2) ...: what the root has itself is put in at its place.
    const std::size_t bytes = c.data().size();
    const collective::scratch sum = c.take_scratch(bytes);
    const collective::scratch next = c.take_scratch(bytes);
    for (unsigned from = 0; from < c.size(); ++from) {
        const in_bytes into = from == 0 ? sum.bytes() : next.bytes();
        if (from == c.root()) {
            co_await c.copying(into, c.contribution());
        } else {
            receive_step in(c, from, into);
            co_await in;
            c.check();
        }
        if (from != 0) co_await combine_in_turns(c, sum.bytes(), next.bytes(), false);
    }
    co_await c.copying(c.data(), sum.bytes());
}

/// Contributions are combined in the order of the ranks behind the root, around to it.
RDMACORO_DECL task<> binomial_reduce(collective& c) {
    const unsigned size = c.size();
    const unsigned place = (c.rank() + size - c.root()) % size;
    const collective::scratch room = c.take_scratch(place % 2 == 0 ? c.data().size() : 0);
    out_bytes mine = c.contribution();  // from the first combination on, `data`
    for (unsigned bit = 1; bit < size; bit *= 2) {
        if ((place & bit) != 0) {
            send_step out(c, (c.rank() + size - bit) % size, mine);
            co_await out;
            c.check();
            co_return;
        }
        if (place + bit >= size) continue;
        combine_step in(c, (c.rank() + bit) % size, c.data(), mine, room.bytes(), false);
        co_await in;
        c.check();
        mine = c.data();
    }
}

/// In the order of the ranks, and grouped alike for every root: the two halves of the ranks, and so on.
RDMACORO_DECL task<> spanning_tree_reduce(collective& c) {
    const tree_path tree(c.rank(), c.size(), c.root());
    std::optional<collective::scratch> room;
    out_bytes mine = c.contribution();  // from the first combination on, `data`
    for (unsigned level = tree.levels(); level-- != 0;) {
        const tree_level& at = tree[level];
        if (c.rank() == at.to) {
            send_step out(c, at.from, mine);
            co_await out;
            c.check();
            co_return;
        }
        if (c.rank() != at.from) continue;
        if (!room) room.emplace(c.scratch_memory(), c.data().size());
        combine_step in(c, at.to, c.data(), mine, room->bytes(), at.to <= at.middle);
        co_await in;
        c.check();
        mine = c.data();
    }
}

}  // namespace rdmacoro::detail
