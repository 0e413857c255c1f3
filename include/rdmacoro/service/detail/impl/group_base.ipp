// Bodies of detail/group_base.hpp.
#pragma once

#include <rdmacoro/service/detail/group_base.hpp>

#include <algorithm>
#include <string>

namespace rdmacoro::detail {

RDMACORO_COLD void group_base::need(std::size_t is, std::size_t wanted, const char* what) const {
    if (is == wanted) return;
    state().refuse(std::string(what) + ": a buffer has " + std::to_string(is) + " elements, not " +
                   std::to_string(wanted));
}

RDMACORO_COLD void group_base::need_counts(std::span<const std::size_t> counts, std::size_t elements,
                                           const char* what) const {
    if (counts.size() != state().size())
        state().refuse(std::string(what) + ": " + std::to_string(counts.size()) + " counts for " +
                       std::to_string(state().size()) + " ranks");
    // Counts with a sum above the largest number would have a right sum again, and blocks outside of the buffer.
    constexpr std::size_t most = ~std::size_t{0};
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum = count > most - sum ? most : sum + count;
    need(elements, sum, what);
}

RDMACORO_COLD void group_base::need_same_counts(std::span<const std::size_t> given,
                                                std::span<const std::size_t> gotten, const char* what) const {
    if (!std::ranges::equal(given, gotten))
        state().refuse(std::string(what) + ": what is given and what is gotten are one, with other counts");
}

RDMACORO_COLD void group_base::refuse_overlap(const collective_call& call) const {
    const unsigned rank = state().rank();
    const auto own_block_of = [&](const std::byte* all, const block_layout& blocks,
                                  std::span<const std::size_t> counts) {
        return all + (counts.empty() ? blocks.offset(rank) : elements_before(counts, rank) * call.element);
    };
    switch (call.kind) {
        case collective_kind::scatter:
            if (rank != call.root || call.out == own_block_of(call.in, call.in_blocks, call.in_counts))
                return;
            break;
        case collective_kind::gather:
            if (rank != call.root || call.in == own_block_of(call.out, call.out_blocks, call.out_counts))
                return;
            break;
        case collective_kind::reduce:
            if (rank != call.root) return;
            break;
        case collective_kind::allgather:
            if (call.in == own_block_of(call.out, call.out_blocks, call.out_counts)) return;
            break;
        case collective_kind::reduce_scatter:
            if (call.out == own_block_of(call.in, call.in_blocks, call.in_counts)) return;
            break;
        default: break;
    }
    state().refuse(std::string(function_name(call.kind, call.uneven)) +
                   ": what is given and what is gotten overlap in part");
}

}  // namespace rdmacoro::detail
