// Algorithms of collectives in two levels: within each host, and between the first ranks of the hosts.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <optional>

namespace rdmacoro::detail {

/// The ranks on this host, and one rank of each host: the root on its own host, the lowest rank on the others. In the order of ranks. What
/// other hosts' ranks there are costs nothing, unless the root is not the lowest of its host.
class host_levels {
public:
    host_levels(collective& c, unsigned root)
        : memory_(c.take_scratch(c.is_first_on_host(root) ? 0 : c.first_ranks().size() * sizeof(unsigned))),
          here_(c.ranks_here()),
          leaders_(c.first_ranks()),
          leader_(c.host_of(root) == c.host_of(c.rank()) ? root : here_.front()) {
        if (c.is_first_on_host(root)) return;
        auto* const own = reinterpret_cast<unsigned*>(memory_.data());
        auto* const end = std::ranges::copy(leaders_, own).out;
        *std::find_if(own, end, [&](unsigned rank) { return c.host_of(rank) == c.host_of(root); }) = root;
        std::sort(own, end);
        leaders_ = {own, end};
    }
    [[nodiscard]] std::span<const unsigned> here() const noexcept { return here_; }
    [[nodiscard]] std::span<const unsigned> leaders() const noexcept { return leaders_; }
    /// Of this host, as a rank of the whole.
    [[nodiscard]] unsigned leader() const noexcept { return leader_; }
    [[nodiscard]] static unsigned place(std::span<const unsigned> in, unsigned rank) noexcept {
        return static_cast<unsigned>(std::lower_bound(in.begin(), in.end(), rank) - in.begin());
    }

private:
    collective::scratch memory_;
    std::span<const unsigned> here_;
    std::span<const unsigned> leaders_;
    unsigned leader_;
};

/// The same, and all ranks in the order of their hosts' leaders, those of one host one behind the other: the order of blocks on the way between
/// hosts.
class host_order : public host_levels {
public:
    host_order(collective& c, unsigned root)
        : host_levels(c, root),
          memory_(c.take_scratch((std::size_t{c.size()} + leaders().size() + 1 + hosts_numbered(c)) *
                                 sizeof(unsigned))),
          order_(reinterpret_cast<unsigned*>(memory_.data())),
          begins_(order_ + c.size()) {
        const auto hosts = static_cast<unsigned>(leaders().size());
        unsigned* const numbers = begins_ + hosts + 1;  // by the host's number within the job
        for (unsigned at = 0; at < hosts; ++at) numbers[c.host_of(leaders()[at])] = at;
        std::fill_n(begins_, hosts + 1, 0);
        for (unsigned rank = 0; rank < c.size(); ++rank) ++begins_[numbers[c.host_of(rank)] + 1];
        for (unsigned at = 0; at < hosts; ++at) begins_[at + 1] += begins_[at];
        for (unsigned rank = 0; rank < c.size(); ++rank) order_[begins_[numbers[c.host_of(rank)]]++] = rank;
        for (unsigned at = hosts; at != 0; --at) begins_[at] = begins_[at - 1];
        begins_[0] = 0;
        own_ = numbers[c.host_of(c.rank())];
        for (unsigned at = 0; at < c.size(); ++at) in_row_ = in_row_ && order_[at] == at;
        ranks_ = c.size();
    }
    [[nodiscard]] std::span<const unsigned> all() const noexcept { return {order_, ranks_}; }
    [[nodiscard]] unsigned hosts() const noexcept { return static_cast<unsigned>(leaders().size()); }
    [[nodiscard]] std::span<const unsigned> of_host(unsigned which) const noexcept {
        return all().subspan(begins_[which], begins_[which + 1] - begins_[which]);
    }
    /// This rank's host.
    [[nodiscard]] unsigned own() const noexcept { return own_; }
    [[nodiscard]] bool leads(unsigned rank) const noexcept { return leader() == rank; }
    [[nodiscard]] unsigned place_here(unsigned rank) const noexcept { return place(here(), rank); }
    /// It is that of ranks: blocks need not be moved.
    [[nodiscard]] bool in_row() const noexcept { return in_row_; }

    /// The blocks that all ranks of each host have together, of which `bytes_of(rank)` tells the length.
    template <class BytesOf>
    [[nodiscard]] step_blocks blocks_of_hosts(collective& c, BytesOf bytes_of) const {
        return step_blocks(c, hosts(), [&](unsigned host) {
            std::size_t sum = 0;
            for (const unsigned rank : of_host(host)) sum += bytes_of(rank);
            return sum;
        });
    }

private:
    [[nodiscard]] static std::size_t hosts_numbered(const collective& c) noexcept {
        unsigned most = 0;
        for (unsigned rank = 0; rank < c.size(); ++rank) most = std::max(most, c.host_of(rank));
        return std::size_t{most} + 1;
    }

    collective::scratch memory_;
    unsigned* order_;
    unsigned* begins_;  // by host, and the end
    unsigned own_ = 0;
    unsigned ranks_ = 0;
    bool in_row_ = true;
};

/// One level: a step among `members`, where this rank is one of them.
inline task<> level(collective& c, std::span<const unsigned> members, collective_call call,
                    step_algorithm how) {
    if (members.size() < 2) co_return;
    collective step(c, members, call);
    co_await how(step);
}
/// A call of a level, on all of the collective's elements.
[[nodiscard]] inline collective_call whole_step(const collective& c, std::span<const unsigned> members,
                                                collective_kind kind, unsigned root) noexcept {
    collective_call call = step_of(c, kind);
    call.out = c.call().out;
    call.bytes = c.call().bytes;
    call.root = host_levels::place(members, root);
    return call;
}
/// The sum of this host's ranks at their leader, in `data`.
inline task<> reduce_here(collective& c, const host_levels& levels) {
    collective_call call = whole_step(c, levels.here(), collective_kind::reduce, levels.leader());
    call.in = c.call().in;
    if (levels.here().size() == 1) co_await c.copying(c.data(), c.contribution());
    co_await level(c, levels.here(), call, &spanning_tree_reduce);
}

RDMACORO_DECL task<> hierarchical_barrier(collective& c) {
    const host_levels levels(c, 0);
    const auto here = levels.here();
    co_await level(c, here, whole_step(c, here, collective_kind::reduce, levels.leader()),
                   &spanning_tree_reduce);
    if (levels.leader() == c.rank())
        co_await level(c, levels.leaders(), whole_step(c, levels.leaders(), collective_kind::barrier, 0),
                       &dissemination_barrier);
    co_await level(c, here, whole_step(c, here, collective_kind::broadcast, levels.leader()),
                   &spanning_tree_broadcast);
}

RDMACORO_DECL task<> hierarchical_broadcast(collective& c) {
    const host_levels levels(c, c.root());
    if (levels.leader() == c.rank())
        co_await level(c, levels.leaders(),
                       whole_step(c, levels.leaders(), collective_kind::broadcast, c.root()),
                       &binomial_broadcast);
    co_await level(c, levels.here(),
                   whole_step(c, levels.here(), collective_kind::broadcast, levels.leader()),
                   &binomial_broadcast);
}

RDMACORO_DECL task<> hierarchical_reduce(collective& c) {
    const host_levels levels(c, c.root());
    co_await reduce_here(c, levels);
    if (levels.leader() == c.rank())
        co_await level(c, levels.leaders(),
                       whole_step(c, levels.leaders(), collective_kind::reduce, c.root()),
                       &spanning_tree_reduce);
}

RDMACORO_DECL task<> hierarchical_allreduce(collective& c) {
    const host_levels levels(c, 0);
    co_await reduce_here(c, levels);
    if (levels.leader() == c.rank()) {
        const bool is_short = c.data().size() < (std::size_t{16} << 10);
        co_await level(c, levels.leaders(), whole_step(c, levels.leaders(), collective_kind::allreduce, 0),
                       is_short ? &doubling_allreduce : &rabenseifner_allreduce);
    }
    co_await level(c, levels.here(),
                   whole_step(c, levels.here(), collective_kind::broadcast, levels.leader()),
                   &spanning_tree_broadcast);
}

/// Bytes of all ranks' blocks up to which a tree gathers and scatters them.
inline constexpr std::size_t blocks_for_tree = std::size_t{16} << 10;

/// Blocks of one length: those of a host at its leader, and of all hosts at the root.
RDMACORO_DECL task<> hierarchical_gather(collective& c) {
    const host_order hosts(c, c.root());
    const bool is_root = c.rank() == c.root();
    const bool leads = hosts.leads(c.rank());
    const std::size_t each = c.block_bytes(c.rank());
    const step_blocks of_hosts = hosts.blocks_of_hosts(c, [each](unsigned) { return each; });
    const bool in_place = is_root && hosts.in_row();
    const collective::scratch memory = c.take_scratch(in_place  ? 0
                                                      : is_root ? of_hosts.total()
                                                      : leads   ? of_hosts.bytes(hosts.own())
                                                                : 0);
    const in_bytes all = in_place ? c.blocks(0, c.size() - 1) : memory.bytes();
    const in_bytes here =
        is_root ? all.subspan(of_hosts.offset(hosts.own()), of_hosts.bytes(hosts.own())) : all;
    const bool by_tree = of_hosts.total() <= blocks_for_tree;
    const step_algorithm how = by_tree ? &spanning_tree_gather : &overlapped_flat_gather;
    collective_call call = step_of(c, collective_kind::gather);
    call.root = hosts.place_here(hosts.leader());
    call.out = leads ? here.data() : c.own().data();
    call.out_blocks.each = call.bytes = each;
    if (leads)
        co_await c.copying(block_at(here, each, hosts.place_here(c.rank())),
                           is_root ? c.block(c.rank()) : c.own());
    co_await level(c, hosts.here(), call, how);
    if (!leads) co_return;
    call = step_of(c, collective_kind::gather);
    call.root = host_levels::place(hosts.leaders(), c.root());
    call.out = is_root ? all.data() : here.data();
    call.out_blocks = of_hosts.layout();
    call.bytes = here.size();
    co_await level(c, hosts.leaders(), call, how);
    if (!is_root || in_place) co_return;
    for (unsigned at = 0; at < c.size(); ++at)
        co_await c.copying(c.block(hosts.all()[at]), block_at(all, each, at));
}

/// Blocks of one length: those of a host to its leader, and from there to its ranks.
RDMACORO_DECL task<> hierarchical_scatter(collective& c) {
    const host_order hosts(c, c.root());
    const bool is_root = c.rank() == c.root();
    const bool leads = hosts.leads(c.rank());
    const std::size_t each = c.own().size();
    const step_blocks of_hosts = hosts.blocks_of_hosts(c, [each](unsigned) { return each; });
    const bool in_row = is_root && hosts.in_row();
    const collective::scratch memory = c.take_scratch(in_row    ? 0
                                                      : is_root ? of_hosts.total()
                                                      : leads   ? of_hosts.bytes(hosts.own())
                                                                : 0);
    if (is_root && !in_row) {
        for (unsigned at = 0; at < c.size(); ++at)
            co_await c.copying(block_at(memory.bytes(), each, at), c.given(hosts.all()[at]));
    }
    const std::byte* const all = in_row ? c.given(0, c.size() - 1).data() : memory.data();
    const std::byte* const here = is_root ? all + of_hosts.offset(hosts.own()) : all;
    const bool by_tree = of_hosts.total() <= blocks_for_tree;
    const step_algorithm how = by_tree ? &spanning_tree_scatter : &overlapped_flat_scatter;
    if (leads) {
        collective_call call = step_of(c, collective_kind::scatter);
        call.root = host_levels::place(hosts.leaders(), c.root());
        call.in = all;
        call.in_blocks = of_hosts.layout();
        call.out = memory.data();  // of the root nothing is written: its own are in their place
        call.bytes = of_hosts.bytes(hosts.own());
        co_await level(c, hosts.leaders(), call, how);
    }
    collective_call call = step_of(c, collective_kind::scatter);
    call.root = hosts.place_here(hosts.leader());
    call.in = here;
    call.in_blocks.each = call.bytes = each;
    call.out = c.own().data();
    if (leads) co_await c.copying(c.own(), {here + hosts.place_here(c.rank()) * each, each});
    co_await level(c, hosts.here(), call, how);
}

/// The blocks of a host at its leader, of all hosts at the leaders, and of all at all.
RDMACORO_DECL task<> hierarchical_allgather(collective& c) {
    const host_order hosts(c, 0);
    const bool leads = hosts.leads(c.rank());
    const step_blocks of_hosts =
        hosts.blocks_of_hosts(c, [&c](unsigned rank) { return c.block_bytes(rank); });
    const step_blocks of_here(c, static_cast<unsigned>(hosts.here().size()),
                              [&](unsigned at) { return c.block_bytes(hosts.here()[at]); });
    const in_bytes whole = c.blocks(0, c.size() - 1);
    const collective::scratch memory = c.take_scratch(leads && !hosts.in_row() ? whole.size() : 0);
    const in_bytes all = hosts.in_row() ? whole : memory.bytes();
    const in_bytes own = c.block(c.rank());
    const unsigned place = hosts.place_here(c.rank());
    collective_call call = step_of(c, collective_kind::gather);
    call.root = hosts.place_here(hosts.leader());
    call.out = leads ? all.data() + of_hosts.offset(hosts.own()) : own.data();
    call.out_blocks = of_here.layout();
    call.bytes = own.size();
    if (leads) co_await c.copying({call.out + of_here.offset(place), own.size()}, own);
    const bool by_tree = whole.size() <= blocks_for_tree;
    co_await level(c, hosts.here(), call, by_tree ? &spanning_tree_gather : &overlapped_flat_gather);
    if (leads) {
        call = step_of(c, collective_kind::allgather);
        call.out = all.data();
        call.out_blocks = of_hosts.layout();
        call.bytes = of_hosts.bytes(hosts.own());
        const bool is_short = whole.size() <= (std::size_t{512} << 10);
        co_await level(c, hosts.leaders(), call, is_short ? &doubling_allgather : &ring_allgather);
        std::size_t from = 0;
        for (unsigned at = 0; at < c.size() && !hosts.in_row(); ++at) {
            const in_bytes to = c.block(hosts.all()[at]);
            co_await c.copying(to, all.subspan(from, to.size()));
            from += to.size();
        }
    }
    call = step_of(c, collective_kind::broadcast);
    call.root = hosts.place_here(hosts.leader());
    call.out = whole.data();
    call.bytes = whole.size();
    co_await level(c, hosts.here(), call, &binomial_broadcast);
}

/// Blocks of one length: all that a host's ranks give goes to its leader, between leaders those for a host together, and from there to its ranks.
RDMACORO_DECL task<> hierarchical_alltoall(collective& c) {
    const host_order hosts(c, 0);
    const bool leads = hosts.leads(c.rank());
    const std::size_t each = c.block_bytes(0);
    const std::size_t row = c.size() * each;
    const std::size_t count = hosts.here().size();
    const step_blocks of_hosts(c, hosts.hosts(),
                               [&](unsigned host) { return count * hosts.of_host(host).size() * each; });
    const collective::scratch rows = c.take_scratch(leads ? count * row : 0);
    const collective::scratch going = c.take_scratch(leads ? count * row : 0);
    const collective::scratch coming = c.take_scratch(leads ? count * row : 0);
    const unsigned place = hosts.place_here(c.rank());
    collective_call call = step_of(c, collective_kind::gather);
    call.root = hosts.place_here(hosts.leader());
    call.out = leads ? rows.data() : const_cast<std::byte*>(c.given(0, c.size() - 1).data());  // only read
    call.out_blocks.each = call.bytes = row;
    if (leads) co_await c.copying(block_at(rows.bytes(), row, place), c.given(0, c.size() - 1));
    co_await level(c, hosts.here(), call, &overlapped_flat_gather);
    if (leads) {
        // Between two hosts, for each rank of the one a block for each of the other.
        std::size_t at = 0;
        for (unsigned host = 0; host < hosts.hosts(); ++host) {
            for (std::size_t from = 0; from < count; ++from) {
                for (const unsigned to : hosts.of_host(host)) {
                    co_await c.copying(going.bytes().subspan(at, each),
                                       block_at(rows.bytes(), row, from).subspan(to * each, each));
                    at += each;
                }
            }
        }
        call = step_of(c, collective_kind::alltoall);
        call.in = going.data();
        call.out = coming.data();
        call.in_blocks = call.out_blocks = of_hosts.layout();
        co_await level(c, hosts.leaders(), call, &pairwise_alltoall);
        at = 0;
        for (unsigned host = 0; host < hosts.hosts(); ++host) {
            for (const unsigned from : hosts.of_host(host)) {
                for (std::size_t to = 0; to < count; ++to) {
                    co_await c.copying(block_at(rows.bytes(), row, to).subspan(from * each, each),
                                       coming.bytes().subspan(at, each));
                    at += each;
                }
            }
        }
    }
    call = step_of(c, collective_kind::scatter);
    call.root = hosts.place_here(hosts.leader());
    call.in = rows.data();
    call.in_blocks.each = call.bytes = row;
    const in_bytes result = c.blocks(0, c.size() - 1);
    call.out = result.data();
    if (leads) co_await c.copying(result, block_at(rows.bytes(), row, place));
    co_await level(c, hosts.here(), call, &overlapped_flat_scatter);
}

/// The sum of a host's ranks at its leader, each host's blocks of all at the leader, and from there to its ranks.
RDMACORO_DECL task<> hierarchical_reduce_scatter(collective& c) {
    const host_order hosts(c, 0);
    const bool leads = hosts.leads(c.rank());
    const step_blocks of_hosts =
        hosts.blocks_of_hosts(c, [&c](unsigned rank) { return c.block_bytes(rank); });
    const step_blocks of_here(c, static_cast<unsigned>(hosts.here().size()),
                              [&](unsigned at) { return c.block_bytes(hosts.here()[at]); });
    const out_bytes given = c.given(0, c.size() - 1);
    const collective::scratch sums = c.take_scratch(given.size());
    collective_call call = step_of(c, collective_kind::reduce);
    call.root = hosts.place_here(hosts.leader());
    call.in = given.data();
    call.out = sums.data();
    call.bytes = given.size();
    if (hosts.here().size() == 1) co_await c.copying(sums.bytes(), given);
    co_await level(c, hosts.here(), call, &spanning_tree_reduce);
    const collective::scratch packed = c.take_scratch(leads && !hosts.in_row() ? given.size() : 0);
    const collective::scratch own = c.take_scratch(leads ? of_hosts.bytes(hosts.own()) : 0);
    if (leads) {
        std::size_t at = 0;
        for (const unsigned rank : hosts.all()) {
            if (hosts.in_row()) break;
            const std::size_t from = rank != 0 ? c.blocks_bytes(0, rank - 1) : 0;
            co_await c.copying(packed.bytes().subspan(at, c.block_bytes(rank)),
                               sums.bytes().subspan(from, c.block_bytes(rank)));
            at += c.block_bytes(rank);
        }
        call = step_of(c, collective_kind::reduce_scatter);
        call.in = hosts.in_row() ? sums.data() : packed.data();
        call.in_blocks = of_hosts.layout();
        call.out = own.data();
        call.bytes = of_hosts.bytes(hosts.own());
        const bool is_short = given.size() <= (std::size_t{256} << 10);
        co_await level(c, hosts.leaders(), call, is_short ? &halving_reduce_scatter : &ring_reduce_scatter);
    }
    call = step_of(c, collective_kind::scatter);
    call.root = hosts.place_here(hosts.leader());
    call.in = own.data();
    call.in_blocks = of_here.layout();
    call.out = c.own().data();
    call.bytes = c.own().size();
    const unsigned place = hosts.place_here(c.rank());
    if (leads) co_await c.copying(c.own(), own.bytes().subspan(of_here.offset(place), c.own().size()));
    co_await level(c, hosts.here(), call, &overlapped_flat_scatter);
}

/// Of hosts the ranks of which follow each other: within each, and then the result of the hosts before it is added.
RDMACORO_DECL task<> hierarchical_scan(collective& c) {
    const host_order hosts(c, 0);
    const std::span<const unsigned> here = hosts.here();
    const bool exclusive = c.kind() == collective_kind::exscan;
    const bool is_last = here.back() == c.rank();
    const bool is_first = here.front() == c.rank();
    const std::size_t bytes = c.data().size();
    // Of the whole host, at its last rank.
    const collective::scratch memory = c.take_scratch(is_last && exclusive ? bytes : 0);
    if (is_last && exclusive) co_await c.copying(memory.bytes(), c.contribution());
    collective_call call = step_of(c, c.kind());
    call.in = c.call().in;
    call.out = c.call().out;
    call.bytes = bytes;
    if (here.size() == 1 && !exclusive) co_await c.copying(c.data(), c.contribution());
    co_await level(c, here, call, &log_step_scan);
    const collective::scratch before = c.take_scratch(bytes);
    if (is_last) {
        if (exclusive && !is_first) co_await combine_in_turns(c, memory.bytes(), c.data(), true);
        const collective::scratch list = c.take_scratch(hosts.hosts() * sizeof(unsigned));
        const std::span<unsigned> tails(reinterpret_cast<unsigned*>(list.data()), hosts.hosts());
        for (unsigned host = 0; host < hosts.hosts(); ++host) tails[host] = hosts.of_host(host).back();
        call = step_of(c, collective_kind::exscan);
        call.in = exclusive ? memory.data() : c.data().data();
        call.out = before.data();
        call.bytes = bytes;
        co_await level(c, tails, call, &log_step_scan);
    }
    if (hosts.own() == 0) co_return;
    call = step_of(c, collective_kind::broadcast);
    call.root = hosts.place_here(here.back());
    call.out = before.data();
    call.bytes = bytes;
    co_await level(c, here, call, &binomial_broadcast);
    if (exclusive && is_first) {
        co_await c.copying(c.data(), before.bytes());
    } else {
        co_await combine_in_turns(c, c.data(), before.bytes(), true);
    }
}

}  // namespace rdmacoro::detail
