// Bodies of collectives.hpp.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/service/collectives.hpp>
#include <rdmacoro/service/detail/choice_limits.hpp>

#include <algorithm>
#include <array>

namespace rdmacoro {

namespace detail {
using all_barriers =
    barriers<dissemination<>, spanning_tree<>, flat_tree<>, four_ary_tree<>, by_root<>, hierarchical<>>;
using all_broadcasts = broadcast<flat_tree<>, overlapped_flat_tree<>, binomial<>, spanning_tree<>,
                                 four_ary_tree<>, scatter_allgather<>, chain<>, hierarchical<>,
                                 by_parts<any_length, spanning_tree<>, recursive_doubling<>>>;
using all_scatters = scatters<flat_tree<>, overlapped_flat_tree<>, spanning_tree<>, hierarchical<>>;
using all_gathers = gathers<flat_tree<>, overlapped_flat_tree<>, spanning_tree<>, hierarchical<>>;
using all_allgathers = allgather<ring<>, double_ring<>, recursive_doubling<>, bruck<>, by_root<>,
                                 overlapped_flat_tree<>, hierarchical<>>;
using all_alltoalls = alltoall<overlapped_flat_tree<>, pairwise<>, bruck<>, hierarchical<>>;
using all_reduces = reduce<flat_tree<>, binomial<>, spanning_tree<>, ring<>, by_parts<>, hierarchical<>>;
using all_allreduces =
    allreduce<recursive_doubling<>, rabenseifner<>, ring<>, pipelined_ring<>, ring_by_host<>, by_root<>,
              by_parts<any_length, recursive_halving<>, recursive_doubling<>>, hierarchical<>>;
using all_reduce_scatters =
    reduce_scatter<ring<>, recursive_halving<>, pairwise<>, by_root<>, hierarchical<>>;
using all_scans = scan<log_step<>, flat_tree<>, overlapped_flat_tree<>, chain<>, hierarchical<>>;
using all_exscans = exscan<log_step<>, flat_tree<>, overlapped_flat_tree<>, chain<>, hierarchical<>>;
}  // namespace detail

RDMACORO_COLD std::span<const algorithm> algorithms_of(collective_kind kind) {
    switch (kind) {
        case collective_kind::barrier: return detail::all_barriers::table;
        case collective_kind::broadcast: return detail::all_broadcasts::table;
        case collective_kind::scatter: return detail::all_scatters::table;
        case collective_kind::gather: return detail::all_gathers::table;
        case collective_kind::allgather: return detail::all_allgathers::table;
        case collective_kind::alltoall: return detail::all_alltoalls::table;
        case collective_kind::reduce: return detail::all_reduces::table;
        case collective_kind::allreduce: return detail::all_allreduces::table;
        case collective_kind::reduce_scatter: return detail::all_reduce_scatters::table;
        case collective_kind::scan: return detail::all_scans::table;
        case collective_kind::exscan: return detail::all_exscans::table;
    }
    return {};
}

RDMACORO_COLD const algorithm* find_algorithm(collective_kind kind, std::string_view name) {
    for (const algorithm& one : algorithms_of(kind)) {
        if (one.name == name) return &one;
    }
    return nullptr;
}

RDMACORO_COLD std::string explain_collectives(unsigned ranks, unsigned hosts, algorithm_choice choice,
                                              bool in_turn) {
    if (ranks == 0 || hosts == 0 || hosts > ranks)
        throw error(errc::invalid_argument, "explain_collectives: " + std::to_string(ranks) + " ranks on " +
                                                std::to_string(hosts) + " hosts");
    const auto name_at = [&](collective_kind kind, std::size_t bytes, bool left_fold) {
        collective_shape shape;
        shape.kind = kind;
        shape.bytes = bytes;
        shape.elements = bytes / 8;
        shape.ranks = ranks;
        shape.hosts = hosts;
        shape.in_turn = in_turn;
        shape.in_order = shape.left_fold = left_fold;
        const algorithm* found = choice(shape);
        if (found == nullptr) found = default_collectives::choose(shape);
        if (found == nullptr) return std::string("none");
        std::string name(found->name);
        if (!found->steps[0].empty())
            name += " of " + std::string(found->steps[0]) + " and " + std::string(found->steps[1]);
        return name;
    };
    const auto column = [](std::string text, std::size_t width) {
        text.resize(std::max(width, text.size() + 1), ' ');
        return text;
    };
    std::string table = "collectives of " + std::to_string(ranks) + " ranks on " + std::to_string(hosts) +
                        (hosts == 1 ? " host" : " hosts") + (in_turn ? ", numbered in turn" : "") +
                        ", elements of 8 bytes\n";
    table += "  collective      from bytes   algorithm\n";
    constexpr std::size_t longest = std::size_t{1} << 30;
    const auto add = [&](collective_kind kind, bool left_fold) {
        detail::for_each_limit(
            longest, [&](std::size_t bytes) { return name_at(kind, bytes, left_fold); },
            [&](std::size_t bytes, const std::string& name) {
                table += "  " + column(bytes == 0 ? std::string(name_of(kind)) : std::string(), 16) +
                         column(std::to_string(bytes), 13) + name + "\n";
            });
    };
    for (std::size_t which = 0; which < collective_kinds; ++which)
        add(static_cast<collective_kind>(which), false);
    table += "  of an operation that is not associative\n";
    for (std::size_t which = static_cast<std::size_t>(collective_kind::reduce); which < collective_kinds;
         ++which)
        add(static_cast<collective_kind>(which), true);
    return table;
}

}  // namespace rdmacoro
