// Bodies of detail/group_base.hpp.
#pragma once

#include <rdmacoro/service/detail/group_base.hpp>

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

}  // namespace rdmacoro::detail
