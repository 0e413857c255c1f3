// group_elements: which memory collectives take, and what they have to know of it.
#pragma once

#include <rdmacoro/memory/buffers.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

namespace rdmacoro::detail {

template <class R>
inline constexpr bool is_strided = false;
template <class T>
inline constexpr bool is_strided<strided_elements<T>> = true;

template <class R>
struct row_element {};
template <std::ranges::range R>
struct row_element<R> {
    using type = std::remove_cv_t<std::ranges::range_value_t<R>>;
};
template <class T>
struct row_element<strided_elements<T>> {
    using type = std::remove_cv_t<T>;
};
template <class R>
using element_t = typename row_element<std::remove_cvref_t<R>>::type;

/// Blocks of elements at equal distances.
template <class R>
concept strided_row = is_strided<std::remove_cvref_t<R>>;

/// Elements in a row that the caller keeps.
template <class R>
concept plain_row = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                    std::ranges::borrowed_range<R> && std::is_trivially_copyable_v<element_t<R>>;

template <class R>
concept elements_to_read = strided_row<R> || plain_row<R>;
template <class R>
concept elements_to_write =
    (strided_row<R> && !std::is_const_v<typename std::remove_cvref_t<R>::element_type>) ||
    (plain_row<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>);

/// A row that some collectives can leave in its place: a part of it is written.
template <class R>
concept row_in_place = plain_row<R> && elements_to_write<R>;

template <class A, class B>
concept same_elements = std::same_as<element_t<A>, element_t<B>>;

/// Lengths of blocks in elements, which the caller keeps: a temporary vector does not become one.
class block_counts : public std::span<const std::size_t> {
public:
    template <plain_row R>
        requires std::same_as<element_t<R>, std::size_t>
    block_counts(R&& counts) noexcept  // implicit: users give what they have
        : std::span<const std::size_t>(std::ranges::data(counts), std::ranges::size(counts)) {}
};

/// How blocks of bytes lie; `count` 0: in a row.
struct row_stride {
    std::size_t block = 0;
    std::size_t step = 0;  // from the beginning of one to that of the next
    std::size_t count = 0;
};
/// The strides of a call's contribution and of its result.
struct call_strides {
    row_stride in{};
    row_stride out{};
};

template <class R>
[[nodiscard]] row_stride stride_of(const R& row) noexcept {
    if constexpr (strided_row<R>) {
        if (row.count > 1 && row.stride_bytes != row.block_bytes)
            return {row.block_bytes, row.stride_bytes, row.count};
    }
    return {};
}

/// How many elements there are.
template <class R>
[[nodiscard]] std::size_t elements_in(const R& row) noexcept {
    if constexpr (strided_row<R>) {
        return row.size();
    } else {
        return std::ranges::size(row);
    }
}
template <class R>
[[nodiscard]] std::size_t bytes_of_row(const R& row) noexcept {
    return elements_in(row) * sizeof(element_t<R>);
}

/// Whether ranges of bytes have some in common, and are not the same.
[[nodiscard]] inline bool overlap_in_part(const std::byte* a, std::size_t a_bytes, const std::byte* b,
                                          std::size_t b_bytes) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(a);
    const auto second = reinterpret_cast<std::uintptr_t>(b);
    return first < second + b_bytes && second < first + a_bytes && a_bytes != 0 && b_bytes != 0 &&
           (first != second || a_bytes != b_bytes);
}

template <class R>
[[nodiscard]] const std::byte* read_from(R&& row) noexcept {
    if constexpr (strided_row<R>) {
        return row.base;
    } else {
        return reinterpret_cast<const std::byte*>(std::ranges::data(row));
    }
}
template <class R>
[[nodiscard]] std::byte* write_to(R&& row) noexcept {
    if constexpr (strided_row<R>) {
        return row.base;
    } else {
        return reinterpret_cast<std::byte*>(std::ranges::data(row));
    }
}

/// Whether two rows are one: the same elements, without gaps. Rows with gaps are packed into memory of their own.
template <class A, class B>
[[nodiscard]] bool same_row(const A& a, const B& b) noexcept {
    return read_from(a) == read_from(b) && elements_in(a) == elements_in(b) && stride_of(a).count == 0 &&
           stride_of(b).count == 0;
}

}  // namespace rdmacoro::detail
