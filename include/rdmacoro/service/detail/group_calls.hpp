// group_calls: what a rank asks for, from the types of its memory, its operation and its options.
#pragma once

#include <rdmacoro/service/collective.hpp>
#include <rdmacoro/service/collective_options.hpp>
#include <rdmacoro/service/detail/group_elements.hpp>
#include <rdmacoro/service/detail/run_collective.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace rdmacoro::detail {

/// On elements of the row type `R`.
template <collective_kind K, class R, class... Options>
[[nodiscard]] collective_call call_of(const Options&... options) {
    collective_call call;
    call.kind = K;
    call.element = sizeof(element_t<R>);
    call.types = &types_of<element_t<R>, void>;
    (..., apply_option<K>(call, options));
    return call;
}

/// The same with an operation, which is copied.
template <collective_kind K, class R, class Op, class... Options>
[[nodiscard]] collective_call call_with(const Op& op, const Options&... options) {
    static_assert(std::is_trivially_copyable_v<Op> && sizeof(Op) <= sizeof(operation_room) &&
                      alignof(Op) <= alignof(operation_room),
                  "an operation of a reduction is trivially copyable and has at most 32 bytes; a larger one "
                  "is referred to by a lambda with a reference");
    using element = element_t<R>;
    static_assert(alignof(element) <= alignof(std::max_align_t),
                  "elements of a reduction need no more alignment than memory from the heap has");
    collective_call call = call_of<K, R>(options...);
    call.types = &types_of<element, Op>;
    call.keep(make_reduction<element>(op), &op, sizeof(Op));
    return call;
}

/// Of the ranks before this one.
[[nodiscard]] inline std::size_t elements_before(std::span<const std::size_t> counts,
                                                 unsigned rank) noexcept {
    std::size_t sum = 0;
    for (unsigned other = 0; other < rank; ++other) sum += counts[other];
    return sum;
}

/// A scatter or gather in place. `x`: at the root the blocks of `ranks` ranks, of `counts` elements, or alike where there are no counts; at the others,
/// with 0 ranks, their block.
template <collective_kind K, class X, class... Options>
[[nodiscard]] collective_call blocks_call(X& x, unsigned ranks, unsigned rank,
                                          std::span<const std::size_t> counts, const Options&... options) {
    collective_call call = call_of<K, X>(options...);
    call.in = read_from(x);
    call.out = write_to(x);
    call.bytes = bytes_of_row(x);
    if (ranks == 0) return call;
    call.bytes = counts.empty() ? call.bytes / ranks : counts[rank] * call.element;
    const std::size_t before =
        counts.empty() ? rank * call.bytes : elements_before(counts, rank) * call.element;
    // Its own block is in its place.
    if constexpr (K == collective_kind::scatter) {
        call.out += before;
    } else {
        call.in += before;
    }
    return call;
}

}  // namespace rdmacoro::detail
