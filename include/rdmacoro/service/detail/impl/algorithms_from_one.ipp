// Algorithms of collectives: barriers, and what goes from one rank to all.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <optional>

namespace rdmacoro::detail {

// ---- barriers

/// In step k each rank hears of the one 2^k before it, and so of 2^(k+1) ranks.
RDMACORO_DECL task<> dissemination_barrier(collective& c) {
    const unsigned size = c.size();
    for (unsigned distance = 1; distance < size; distance *= 2) {
        send_step out(c, (c.rank() + distance) % size, out_bytes());
        receive_step in(c, (c.rank() + size - distance) % size, in_bytes());
        co_await out;
        co_await in;
        c.check();
    }
}

/// All the way up a minimum spanning tree, and down again.
RDMACORO_DECL task<> tree_barrier(collective& c) {
    const tree_path tree(c.rank(), c.size(), 0);
    for (unsigned level = tree.levels(); level-- != 0;) {
        const tree_level& at = tree[level];
        if (c.rank() == at.to) {
            send_step out(c, at.from, out_bytes());
            co_await out;
        } else if (c.rank() == at.from) {
            receive_step in(c, at.to, in_bytes());
            co_await in;
        }
        c.check();
    }
    for (unsigned level = 0; level != tree.levels(); ++level) {
        const tree_level& at = tree[level];
        if (c.rank() == at.from) {
            send_step out(c, at.to, out_bytes());
            co_await out;
        } else if (c.rank() == at.to) {
            receive_step in(c, at.from, in_bytes());
            co_await in;
        }
        c.check();
    }
}

/// All tell rank 0, which tells all.
RDMACORO_DECL task<> gather_broadcast_barrier(collective& c, step_algorithm gather,
                                              step_algorithm broadcast) {
    std::byte nothing{};
    for (const bool up : {true, false}) {
        collective_call call = step_of(c, up ? collective_kind::gather : collective_kind::broadcast);
        call.out = &nothing;
        collective step(c, {}, call);
        co_await (up ? gather : broadcast)(step);
    }
}

// ---- broadcast

RDMACORO_DECL task<> flat_broadcast(collective& c) {
    if (c.rank() != c.root()) {
        receive_step in(c, c.root(), c.data());
        co_await in;
        c.check();
        co_return;
    }
    for (unsigned to = 0; to < c.size(); ++to) {
        if (to == c.root()) continue;
        send_step out(c, to, c.data());
        co_await out;
        c.check();
    }
}

RDMACORO_DECL task<> overlapped_flat_broadcast(collective& c) {
    if (c.rank() != c.root()) {
        receive_step in(c, c.root(), c.data());
        co_await in;
        c.check();
        co_return;
    }
    transfer_list<send_step> all(c, c.size());
    for (unsigned to = 0; to < c.size(); ++to) {
        if (to != c.root()) all.begin(c, to, c.data());
    }
    for (std::size_t at = 0; at < all.count(); ++at) co_await all[at];
    c.check();
}

RDMACORO_DECL task<> binomial_broadcast(collective& c) {
    const unsigned size = c.size();
    const unsigned place = (c.rank() + size - c.root()) % size;
    unsigned bit = 1;
    while (bit < size && (place & bit) == 0) bit *= 2;
    if (place != 0) {
        receive_step in(c, (c.rank() + size - bit) % size, c.data());
        co_await in;
        c.check();
    }
    while (bit > 1) {
        bit /= 2;
        if (place + bit >= size) continue;
        send_step out(c, (c.rank() + bit) % size, c.data());
        co_await out;
        c.check();
    }
}

RDMACORO_DECL task<> spanning_tree_broadcast(collective& c) {
    const tree_path tree(c.rank(), c.size(), c.root());
    for (unsigned level = 0; level != tree.levels(); ++level) {
        const tree_level& at = tree[level];
        if (c.rank() == at.from) {
            send_step out(c, at.to, c.data());
            co_await out;
        } else if (c.rank() == at.to) {
            receive_step in(c, at.from, c.data());
            co_await in;
        }
        c.check();
    }
}

/// As the binomial tree, with base four: a rank has three children at each distance.
RDMACORO_DECL task<> four_ary_broadcast(collective& c) {
    const unsigned size = c.size();
    const unsigned place = (c.rank() + size - c.root()) % size;
    std::uint64_t distance = 1;
    while (distance < size && place / distance % 4 == 0) distance *= 4;
    if (place != 0) {
        const auto parent = static_cast<unsigned>(place - place / distance % 4 * distance);
        receive_step in(c, (parent + c.root()) % size, c.data());
        co_await in;
        c.check();
    }
    while (distance > 1) {
        distance /= 4;
        for (unsigned child = 1; child < 4; ++child) {
            const std::uint64_t to = place + child * distance;
            if (to >= size) break;
            send_step out(c, static_cast<unsigned>((to + c.root()) % size), c.data());
            co_await out;
            c.check();
        }
    }
}

/// Each rank gets a part by a spanning tree, and the others' parts around the ring. Van de Geijn's broadcast of long messages.
RDMACORO_DECL task<> scatter_allgather_broadcast(collective& c) {
    const element_parts parts = parts_of(c);
    const tree_path tree(c.rank(), c.size(), c.root());
    for (unsigned level = 0; level != tree.levels(); ++level) {
        const tree_level& at = tree[level];
        const bool to_left = at.to <= at.middle;
        const unsigned first = to_left ? at.left : at.middle + 1;
        const unsigned last = to_left ? at.middle : at.right;
        if (c.rank() == at.from) {
            send_step out(c, at.to, parts.of<out_bytes>(c.data(), first, last + 1));
            co_await out;
        } else if (c.rank() == at.to) {
            receive_step in(c, at.from, parts.of<in_bytes>(c.data(), first, last + 1));
            co_await in;
        }
        c.check();
    }
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    for (unsigned step = 0; step + 1 < size; ++step) {
        const unsigned gives = (c.rank() + size - step) % size;
        const unsigned gets = (before + size - step) % size;
        send_step out(c, next, parts.of<out_bytes>(c.data(), gives, gives + 1));
        receive_step in(c, before, parts.of<in_bytes>(c.data(), gets, gets + 1));
        co_await out;
        co_await in;
        c.check();
    }
}

[[nodiscard]] inline in_bytes piece_at(in_bytes all, std::size_t at, std::size_t most) noexcept {
    return all.subspan(at, std::min(most, all.size() - at));
}

/// Along a chain of ranks in pieces: a rank passes one on while the next one comes.
RDMACORO_DECL task<> chain_broadcast(collective& c) {
    constexpr std::size_t piece = std::size_t{64} << 10;
    const unsigned size = c.size();
    const unsigned place = (c.rank() + size - c.root()) % size;
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    const in_bytes all = c.data();
    std::optional<send_step> out;
    std::size_t at = 0;
    do {
        if (place != 0) {
            receive_step in(c, before, piece_at(all, at, piece));
            co_await in;
        }
        if (out) {
            co_await *out;
            out.reset();
        }
        c.check();
        if (place + 1 < size) out.emplace(c, next, piece_at(all, at, piece));
        at += piece;
    } while (at < all.size());
    if (out) co_await *out;
    c.check();
}

// ---- scatter

RDMACORO_DECL task<> flat_scatter(collective& c) {
    if (c.rank() != c.root()) {
        receive_step in(c, c.root(), c.own());
        co_await in;
        c.check();
        co_return;
    }
    for (unsigned to = 0; to < c.size(); ++to) {
        if (to == c.root()) continue;
        send_step out(c, to, c.given(to));
        co_await out;
        c.check();
    }
}

RDMACORO_DECL task<> overlapped_flat_scatter(collective& c) {
    if (c.rank() != c.root()) {
        receive_step in(c, c.root(), c.own());
        co_await in;
        c.check();
        co_return;
    }
    transfer_list<send_step> all(c, c.size());
    for (unsigned to = 0; to < c.size(); ++to) {
        if (to != c.root()) all.begin(c, to, c.given(to));
    }
    for (std::size_t at = 0; at < all.count(); ++at) co_await all[at];
    c.check();
}

/// A rank that is not the root has, for a while, the blocks of the ranks below it in the tree. Where the root alone knows their lengths, these go
/// before the blocks.
RDMACORO_DECL task<> spanning_tree_scatter(collective& c) {
    const tree_path tree(c.rank(), c.size(), c.root());
    const bool lengths_go = c.call().root_knows;
    out_bytes held = c.rank() == c.root() && c.size() > 1 ? c.given(0, c.size() - 1) : out_bytes();
    unsigned held_from = 0;
    std::optional<collective::scratch> memory;
    std::optional<block_lengths> lengths;
    if (lengths_go && c.rank() == c.root()) {
        lengths.emplace(c, 0, c.size() - 1);
        for (unsigned rank = 0; rank < c.size(); ++rank) lengths->set(rank, c.given(rank).size());
    }
    const block_row row(c, lengths);
    for (unsigned level = 0; level != tree.levels(); ++level) {
        const tree_level& at = tree[level];
        const bool to_left = at.to <= at.middle;
        const unsigned first = to_left ? at.left : at.middle + 1;
        const unsigned last = to_left ? at.middle : at.right;
        if (c.rank() == at.from) {
            if (lengths_go && first != last) {
                send_step out(c, at.to, lengths->of(first, last));
                co_await out;
                c.check();
            }
            send_step out(c, at.to, row.part(held, held_from, first, last));
            co_await out;
        } else if (c.rank() == at.to) {
            in_bytes into = c.own();
            if (first != last) {
                if (lengths_go) {
                    lengths.emplace(c, first, last);
                    receive_step in(c, at.from, lengths->of(first, last));
                    co_await in;
                    c.check();
                    if (!lengths->fit(c.rank(), into.size()))
                        c.wrong_length(at.from, lengths->bytes(c.rank(), c.rank()), into.size());
                    c.check();
                }
                memory.emplace(c.scratch_memory(), row.bytes(first, last));
                into = memory->bytes();
            }
            receive_step in(c, at.from, into);
            co_await in;
            held = into;
            held_from = first;
        }
        c.check();
    }
    if (memory) co_await c.copying(c.own(), row.part(held, held_from, c.rank(), c.rank()));
}

}  // namespace rdmacoro::detail
