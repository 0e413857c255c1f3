// Algorithms of collectives: reductions with a result for all ranks, or a part of it.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <array>
#include <optional>

namespace rdmacoro::detail {

/// Each step exchanges all that two ranks have with all that they lack. Ranks stay in order, and every rank groups alike.
RDMACORO_DECL task<> doubling_allreduce(collective& c) {
    const folded fold(c);
    const in_bytes sum = c.data();
    out_bytes mine = c.contribution();  // from the first combination on, `sum`
    if (fold.waits) {
        receive_step in(c, c.rank() + 1,
                        sum);  // of the result; posted before the part it replaces is on its way
        send_step out(c, c.rank() + 1, mine);
        co_await out;
        co_await in;
        c.check();
        co_return;
    }
    const collective::scratch room = c.take_scratch(sum.size());
    if (fold.takes) {
        combine_step in(c, c.rank() - 1, sum, mine, room.bytes(), true);
        co_await in;
        c.check();
        mine = sum;
    }
    for (unsigned bit = 1; bit < fold.power; bit *= 2) {
        const unsigned with = fold.rank_of(fold.number ^ bit);
        send_step out(c, with, mine);
        combine_step in(c, with, sum, mine, room.bytes(), with < c.rank(), mine.data() != sum.data());
        co_await out;
        co_await in;
        c.check();
        mine = sum;
    }
    if (fold.takes) {
        send_step out(c, c.rank() - 1, sum);
        co_await out;
        c.check();
    }
}

/// Halving, then doubling: each rank reduces a part, and gets the others.
RDMACORO_DECL task<> rabenseifner_allreduce(collective& c) {
    const folded fold(c);
    const in_bytes sum = c.data();
    out_bytes mine = c.contribution();  // from the first combination on, `sum`
    if (fold.waits) {
        send_step out(c, c.rank() + 1, mine);
        co_await out;
        c.check();
        receive_step in(c, c.rank() + 1, sum);
        co_await in;
        c.check();
        co_return;
    }
    const collective::scratch room = c.take_scratch(sum.size());
    if (fold.takes) {
        combine_step in(c, c.rank() - 1, sum, mine, room.bytes(), true);
        co_await in;
        c.check();
        mine = sum;
    }
    const element_parts parts{sum.size() / c.element(), c.element(), fold.power};
    // This rank is responsible for the parts `first` up to, not including, `last`.
    unsigned first = 0;
    unsigned last = fold.power;
    for (unsigned bit = fold.power / 2; bit != 0; bit /= 2) {
        const unsigned with = fold.rank_of(fold.number ^ bit);
        const unsigned middle = first + bit;
        const bool lower = (fold.number & bit) == 0;
        const unsigned keeps_from = lower ? first : middle;
        const unsigned keeps_to = lower ? middle : last;
        send_step out(c, with, parts.of<out_bytes>(mine, lower ? middle : first, lower ? last : middle));
        combine_step in(c, with, parts.of<in_bytes>(sum, keeps_from, keeps_to),
                        parts.of<out_bytes>(mine, keeps_from, keeps_to),
                        parts.of<in_bytes>(room.bytes(), keeps_from, keeps_to), with < c.rank());
        co_await out;
        co_await in;
        c.check();
        mine = sum;
        (lower ? last : first) = middle;
    }
    for (unsigned bit = 1; bit < fold.power; bit *= 2) {
        const unsigned with = fold.rank_of(fold.number ^ bit);
        const bool lower = (fold.number & bit) == 0;
        const unsigned gets = lower ? last : first - bit;
        send_step out(c, with, parts.of<out_bytes>(sum, first, last));
        receive_step in(c, with, parts.of<in_bytes>(sum, gets, gets + bit));
        co_await out;
        co_await in;
        c.check();
        (lower ? last : first) = lower ? last + bit : first - bit;
    }
    if (fold.takes) {
        send_step out(c, c.rank() - 1, sum);
        co_await out;
        c.check();
    }
}

/// Around the ring: in the end rank r has reduced part r + 1. What a rank adds to a part is what it contributes to it, and each part comes by once.
inline task<> reduce_around(collective& c, element_parts parts) {
    const unsigned size = c.size();
    const unsigned next = (c.rank() + 1) % size;
    const unsigned before = (c.rank() + size - 1) % size;
    const in_bytes sum = c.data();
    const out_bytes mine = c.contribution();
    const collective::scratch room = c.take_scratch(parts.of<in_bytes>(sum, 0, 1).size());
    for (unsigned step = 0; step + 1 < size; ++step) {
        const unsigned gives = (c.rank() + size - step) % size;
        const unsigned gets = (before + size - step) % size;
        const in_bytes into = parts.of<in_bytes>(sum, gets, gets + 1);
        send_step out(c, next, parts.of<out_bytes>(step == 0 ? mine : sum, gives, gives + 1));
        combine_step in(c, before, into, parts.of<out_bytes>(mine, gets, gets + 1),
                        room.bytes().first(into.size()), true);
        co_await out;
        co_await in;
        c.check();
    }
}

RDMACORO_DECL task<> ring_allreduce(collective& c) {
    const element_parts parts = parts_of(c);
    co_await reduce_around(c, parts);
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

/// The elements of a ring's ranks, cut into chunks, these into a part for each rank, and parts into pieces: which piece goes and comes in which
/// turn. In step s rank r passes part r - s on to the next rank and gets part r - s - 1, of one chunk after the other.
class pipelined_turns {
public:
    /// `bytes`: of a piece of a part; at least an element.
    pipelined_turns(const collective& c, std::size_t bytes) noexcept
        : size_(c.size()),
          rank_(c.rank()),
          element_(c.element()),
          piece_(std::max<std::size_t>(1, bytes / element_)),
          elements_(c.data().size() / element_),
          in_chunk_(size_ * pieces_in_part * piece_) {}

    /// A piece, in bytes of the whole.
    struct piece {
        std::size_t from = 0;
        std::size_t bytes = 0;

        template <class Bytes>
        [[nodiscard]] Bytes of(Bytes whole) const noexcept {
            return whole.subspan(from, bytes);
        }
    };
    struct turn {
        piece gives;
        piece gets;
        bool first_step = false;  // gives what this rank contributes
        bool combines = false;    // else what comes is the result
        unsigned waits_for = 0;   // how many turns before this one the piece that it gives came
    };
    /// The next turn; false: there is none.
    [[nodiscard]] bool next(turn& of) noexcept {
        while (chunk_ < elements_) {
            const std::size_t here = std::min(in_chunk_, elements_ - chunk_);
            const element_parts parts{here, element_, size_};
            // All parts of a chunk have as many pieces; some of the last chunk may be empty.
            const std::size_t longest = (parts.offset(1) - parts.offset(0)) / element_;
            const auto pieces = static_cast<unsigned>((longest + piece_ - 1) / piece_);
            if (piece_at_ == pieces) {
                piece_at_ = 0;
                ++step_;
            }
            if (step_ == 2 * (size_ - 1)) {
                step_ = 0;
                chunk_ += here;
                continue;
            }
            of.gives = piece_of(parts, (rank_ + 2 * size_ - step_) % size_);
            of.gets = piece_of(parts, (rank_ + 2 * size_ - step_ - 1) % size_);
            of.first_step = step_ == 0;
            of.combines = step_ + 1 < size_;
            of.waits_for = pieces;
            ++piece_at_;
            return true;
        }
        return false;
    }
    /// Bytes of the longest piece.
    [[nodiscard]] std::size_t longest() const noexcept { return piece_ * element_; }

private:
    static constexpr std::size_t pieces_in_part = 2;

    [[nodiscard]] piece piece_of(const element_parts& parts, unsigned part) const noexcept {
        const std::size_t begin = parts.offset(part);
        const std::size_t end = parts.offset(part + 1);
        const std::size_t from = std::min(begin + piece_at_ * piece_ * element_, end);
        return {chunk_ * element_ + from, std::min(piece_ * element_, end - from)};
    }

    unsigned size_;
    unsigned rank_;
    std::size_t element_;
    std::size_t piece_;  // in elements, from here on
    std::size_t elements_;
    std::size_t in_chunk_;
    std::size_t chunk_ = 0;  // where it begins
    unsigned step_ = 0;
    unsigned piece_at_ = 0;
};

/// The transfers of a turn.
struct pipelined_turn_transfers {
    std::optional<send_step> out;
    std::optional<receive_step> takes;
    std::optional<combine_step> combines;
};
inline task<> ended(pipelined_turn_transfers& of) {
    if (of.out) co_await *of.out;
    if (of.takes) co_await *of.takes;
    if (of.combines) co_await *of.combines;
    of.out.reset();
    of.takes.reset();
    of.combines.reset();
}

/// Around the ring in pieces: while one is combined the next one is on its way, and a piece is passed on while it is in the caches.
RDMACORO_DECL task<> pipelined_ring_allreduce(collective& c) {
    constexpr std::size_t piece = std::size_t{32} << 10;
    const unsigned next = (c.rank() + 1) % c.size();
    const unsigned before = (c.rank() + c.size() - 1) % c.size();
    const in_bytes sum = c.data();
    const out_bytes mine = c.contribution();
    pipelined_turns turns(c, piece);
    const collective::scratch room = c.take_scratch(2 * turns.longest());
    std::array<pipelined_turn_transfers, 2> ways;  // of this turn, and of the one before it
    std::size_t at = 0;
    for (pipelined_turns::turn now; turns.next(now); at ^= 1) {
        if (now.waits_for == 1) co_await ended(ways[at ^ 1]);
        co_await ended(ways[at]);
        c.check();
        ways[at].out.emplace(c, next, now.gives.of<out_bytes>(now.first_step ? mine : sum));
        if (now.combines) {
            ways[at].combines.emplace(c, before, now.gets.of<in_bytes>(sum), now.gets.of<out_bytes>(mine),
                                      room.bytes().subspan(at * turns.longest(), now.gets.bytes), true);
        } else {
            ways[at].takes.emplace(c, before, now.gets.of<in_bytes>(sum));
        }
    }
    co_await ended(ways[at]);
    co_await ended(ways[at ^ 1]);
    c.check();
}

/// The same around the ranks of one host after the other, in whatever order they are numbered.
RDMACORO_DECL task<> ring_by_host_allreduce(collective& c) {
    const collective::scratch memory = c.take_scratch(c.size() * sizeof(unsigned));
    const std::span<unsigned> order(reinterpret_cast<unsigned*>(memory.data()), c.size());
    for (unsigned rank = 0; rank < c.size(); ++rank) order[rank] = rank;
    std::sort(order.begin(), order.end(), [&c](unsigned a, unsigned b) {
        return c.host_of(a) != c.host_of(b) ? c.host_of(a) < c.host_of(b) : a < b;
    });
    collective_call call = step_of(c, collective_kind::allreduce);
    call.in = c.call().in;
    call.out = c.call().out;
    call.bytes = c.call().bytes;
    collective step(c, order, call);
    co_await ring_allreduce(step);
}

/// To rank 0, and from there.
RDMACORO_DECL task<> reduce_broadcast_allreduce(collective& c, step_algorithm reduce,
                                                step_algorithm broadcast) {
    collective_call call = step_of(c, collective_kind::reduce);
    call.in = c.call().in;
    call.out = c.call().out;
    call.bytes = c.call().bytes;
    {
        collective step(c, {}, call);
        co_await reduce(step);
    }
    call.kind = collective_kind::broadcast;
    collective step(c, {}, call);
    co_await broadcast(step);
}

/// The parts are reduced around the ring, and sent to the root.
RDMACORO_DECL task<> ring_reduce(collective& c) {
    const element_parts parts = parts_of(c);
    co_await reduce_around(c, parts);
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

/// The parts of an allreduce or a reduce are reduced, one at each rank, those of a broadcast given to the ranks; and gathered by all, or at the root.
RDMACORO_DECL task<> in_parts(collective& c, step_algorithm first, step_algorithm second) {
    const element_parts parts = parts_of(c);
    const step_blocks blocks(c, c.size(),
                             [&](unsigned part) { return parts.offset(part + 1) - parts.offset(part); });
    const bool reduces = c.kind() != collective_kind::broadcast;
    const in_bytes own = c.data().subspan(blocks.offset(c.rank()), blocks.bytes(c.rank()));
    collective_call call = step_of(c, reduces ? collective_kind::reduce_scatter : collective_kind::scatter);
    call.root = c.root();
    call.in = reduces ? c.contribution().data() : c.data().data();
    call.in_blocks = blocks.layout();
    call.out = own.data();
    call.bytes = own.size();
    if (reduces) co_await c.copying(own, c.contribution().subspan(blocks.offset(c.rank()), own.size()));
    {
        collective step(c, {}, call);
        co_await first(step);
    }
    const bool to_all = c.kind() != collective_kind::reduce;
    call = step_of(c, to_all ? collective_kind::allgather : collective_kind::gather);
    call.root = c.root();
    call.out = to_all || c.rank() == c.root() ? c.data().data() : own.data();
    call.out_blocks = blocks.layout();
    call.bytes = own.size();
    collective step(c, {}, call);
    co_await second(step);
}

}  // namespace rdmacoro::detail
