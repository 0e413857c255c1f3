// Algorithms of collectives in two levels: within each host, and between the first ranks of the hosts.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <optional>

namespace rdmacoro::detail {

/// The ranks on this host, and one rank of each host: the root on its own host, the lowest rank on the others. In the order of ranks; the
/// lists lie in scratch memory.
class host_levels {
public:
    host_levels(collective& c, unsigned root)
        : memory_(c.take_scratch(2 * std::size_t{c.size()} * sizeof(unsigned))),
          here_(reinterpret_cast<unsigned*>(memory_.data())),
          leaders_(here_ + c.size()) {
        const unsigned own = c.host_of(c.rank());
        for (unsigned rank = 0; rank < c.size(); ++rank) {
            const unsigned host = c.host_of(rank);
            if (host == own) here_[here_count_++] = rank;
            if (host == c.host_of(root) ? rank == root : c.is_first_on_host(rank)) {
                if (host == own) leader_ = rank;
                leaders_[leader_count_++] = rank;
            }
        }
    }
    [[nodiscard]] std::span<const unsigned> here() const noexcept { return {here_, here_count_}; }
    [[nodiscard]] std::span<const unsigned> leaders() const noexcept { return {leaders_, leader_count_}; }
    /// Of this host, as a rank of the whole.
    [[nodiscard]] unsigned leader() const noexcept { return leader_; }
    [[nodiscard]] static unsigned place(std::span<const unsigned> in, unsigned rank) noexcept {
        return static_cast<unsigned>(std::find(in.begin(), in.end(), rank) - in.begin());
    }

private:
    collective::scratch memory_;
    unsigned* here_;
    unsigned* leaders_;
    unsigned here_count_ = 0;
    unsigned leader_count_ = 0;
    unsigned leader_ = 0;
};

/// One level: `how` among `members`, where this rank is one of them.
inline task<> level(collective& c, std::span<const unsigned> members, collective_kind kind, unsigned root,
                    step_algorithm how) {
    collective_call call = step_of(c, kind);
    call.out = c.call().out;
    call.bytes = c.call().bytes;
    call.root = host_levels::place(members, root);
    collective step(c, members, call);
    if (members.size() > 1) co_await how(step);
}

RDMACORO_DECL task<> hierarchical_barrier(collective& c) {
    const host_levels levels(c, 0);
    co_await level(c, levels.here(), collective_kind::reduce, levels.leader(), &spanning_tree_reduce);
    if (levels.leader() == c.rank())
        co_await level(c, levels.leaders(), collective_kind::barrier, 0, &dissemination_barrier);
    co_await level(c, levels.here(), collective_kind::broadcast, levels.leader(), &spanning_tree_broadcast);
}

RDMACORO_DECL task<> hierarchical_broadcast(collective& c) {
    const host_levels levels(c, c.root());
    if (levels.leader() == c.rank())
        co_await level(c, levels.leaders(), collective_kind::broadcast, c.root(), &binomial_broadcast);
    co_await level(c, levels.here(), collective_kind::broadcast, levels.leader(), &binomial_broadcast);
}

RDMACORO_DECL task<> hierarchical_reduce(collective& c) {
    const host_levels levels(c, c.root());
    co_await level(c, levels.here(), collective_kind::reduce, levels.leader(), &spanning_tree_reduce);
    if (levels.leader() == c.rank())
        co_await level(c, levels.leaders(), collective_kind::reduce, c.root(), &spanning_tree_reduce);
}

RDMACORO_DECL task<> hierarchical_allreduce(collective& c) {
    const host_levels levels(c, 0);
    co_await level(c, levels.here(), collective_kind::reduce, levels.leader(), &spanning_tree_reduce);
    if (levels.leader() == c.rank()) {
        const bool is_short = c.data().size() < (std::size_t{16} << 10);
        co_await level(c, levels.leaders(), collective_kind::allreduce, 0,
                       is_short ? &doubling_allreduce : &rabenseifner_allreduce);
    }
    co_await level(c, levels.here(), collective_kind::broadcast, levels.leader(), &spanning_tree_broadcast);
}

}  // namespace rdmacoro::detail
