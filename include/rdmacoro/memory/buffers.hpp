// Gathered buffers: one message from, or into, several pieces of memory.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/memory/detail/owning_temporary.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace rdmacoro {

/// Returned by `strided`: `count` blocks of `block_bytes` bytes that begin `stride_bytes` apart. Borrows the memory, and
/// converts to buffers.
template <class Byte>
struct strided_blocks {
    Byte* base;                ///< the first block
    std::size_t block_bytes;   ///< the length of each
    std::size_t stride_bytes;  ///< from the beginning of one to that of the next
    std::size_t count;         ///< how many
};

/// The same of elements of type `T`. Collectives take it where they take a span of `T`.
template <class T>
struct strided_elements : strided_blocks<std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>> {
    using element_type = T;  ///< const: only to read
    /// How many elements there are in all blocks.
    [[nodiscard]] constexpr std::size_t size() const noexcept {
        return this->block_bytes / sizeof(T) * this->count;
    }
};

/// A message's memory: one piece or several, in order. Borrows the memory; up to `inline_pieces` pieces, and any number of
/// blocks at equal distances, are stored by value. A longer list stays in the caller's array, which must live as long as
/// this and its slices.
///
/// `Byte` is `const std::byte` (to send from) or `std::byte` (to receive into).
template <class Byte>
class basic_buffers {
public:
    using piece = std::span<Byte>;                   ///< one contiguous part
    static constexpr std::size_t inline_pieces = 3;  ///< up to so many pieces are stored in the object

    constexpr basic_buffers() noexcept : first_{nullptr, 0}, bytes_(0), count_(0) {}

    /// One contiguous piece.
    constexpr basic_buffers(piece only) noexcept
        : first_{only.data(), only.size()}, bytes_(only.size()), count_(1) {}

    /// Anything contiguous that converts to such a span, such as `std::vector<std::byte>&` or an array of bytes.
    template <class Range>
        requires(!std::is_base_of_v<basic_buffers, std::remove_cvref_t<Range>> &&
                 std::is_convertible_v<Range &&, piece>)
    constexpr basic_buffers(Range&& range) noexcept : basic_buffers(piece(static_cast<Range&&>(range))) {}

    /// Several pieces. More than `inline_pieces` are not copied: `pieces` must outlive this.
    explicit constexpr basic_buffers(std::span<const piece> pieces) noexcept
        : first_{nullptr, 0}, bytes_(0), count_(pieces.size()) {
        if (count_ <= inline_pieces) {
            for (std::size_t i = 0; i < count_; ++i) set(i, pieces.data()[i].data(), pieces.data()[i].size());
        } else {
            many_ = {pieces.data(), 0, 0, pieces.data()[count_ - 1].size()};
        }
        for (std::size_t i = 0; i < count_; ++i) bytes_ += pieces.data()[i].size();
    }

    /// Blocks at equal distances, from `strided`. Adjacent blocks are one piece.
    template <class Other>
        requires(std::is_convertible_v<Other (*)[], Byte (*)[]>)
    constexpr basic_buffers(const strided_blocks<Other>& blocks) noexcept
        : first_{blocks.base, blocks.block_bytes},
          bytes_(blocks.block_bytes * blocks.count),
          count_(blocks.count) {
        if (bytes_ == 0 || count_ == 1 || blocks.stride_bytes == blocks.block_bytes) {
            first_.size = bytes_;
            count_ = 1;
        } else if (count_ <= inline_pieces) {
            for (std::size_t i = 1; i < count_; ++i)
                set(i, blocks.base + i * blocks.stride_bytes, blocks.block_bytes);
        } else {
            many_ = {nullptr, blocks.stride_bytes, 0, 0};
        }
    }

    /// The sum of the pieces' lengths, in bytes.
    [[nodiscard]] constexpr std::size_t size() const noexcept { return bytes_; }
    /// Whether there are no bytes.
    [[nodiscard]] constexpr bool empty() const noexcept { return bytes_ == 0; }
    /// The number of pieces, empty ones among them.
    [[nodiscard]] constexpr std::size_t pieces() const noexcept { return count_; }
    /// Whether there is at most one piece.
    [[nodiscard]] constexpr bool contiguous() const noexcept { return count_ <= 1; }

    /// The only piece. Precondition: `contiguous()`.
    [[nodiscard]] constexpr piece front() const noexcept { return {first_.data, first_.size}; }

    /// Piece number `index`, from 0.
    [[nodiscard]] constexpr piece operator[](std::size_t index) const noexcept {
        const raw_piece found = raw(index);
        return {found.data, found.size};
    }

    /// The memory at `offset` as far as it is contiguous; empty at the end. Takes time with the number of pieces before
    /// `offset`, unless they are blocks at equal distances: walk a list with a `buffer_cursor`.
    [[nodiscard]] constexpr piece at_offset(std::size_t offset) const noexcept {
        if (count_ <= 1) return offset < bytes_ ? piece(first_.data + offset, first_.size - offset) : piece();
        return piece_at_offset(offset);
    }

    /// From `offset` on, at most `most` bytes: less where that takes more than `pieces` pieces.
    [[nodiscard]] constexpr basic_buffers slice(std::size_t offset, std::size_t most,
                                                std::size_t pieces = inline_pieces) const noexcept {
        if (count_ > 1) return slice_of_pieces(offset, most, pieces);
        basic_buffers cut;
        cut.count_ = 1;
        if (offset < bytes_) {
            cut.first_ = {first_.data + offset, first_.size - offset};
            if (most < cut.first_.size) cut.first_.size = most;
            cut.bytes_ = cut.first_.size;
        }
        return cut;
    }

private:
    template <class>
    friend class basic_buffer_cursor;

    struct raw_piece {
        Byte* data;
        std::size_t size;
    };
    // More pieces than fit: a list of the caller's, or, without one, blocks of `first_.size` bytes from `first_.data` on.
    // Either may begin and end within a piece.
    struct raw_many {
        const piece* list;
        std::size_t stride;  // of blocks: bytes from the beginning of one to that of the next
        std::size_t skip;    // bytes of the first piece that don't belong to it
        std::size_t last;    // of a list: bytes of its last piece that belong to it
    };
    struct place {
        std::size_t index;
        std::size_t within;
    };

    constexpr void set(std::size_t index, Byte* data, std::size_t size) noexcept {
        if (index == 0) {
            first_ = {data, size};
        } else {
            rest_[index - 1] = {data, size};
        }
    }

    [[nodiscard]] constexpr raw_piece raw(std::size_t index) const noexcept {
        if (count_ <= inline_pieces) return index == 0 ? first_ : rest_[index - 1];
        return one_of_many(index);
    }

    [[nodiscard]] constexpr raw_piece one_of_many(std::size_t index) const noexcept {
        raw_piece whole;
        if (many_.list != nullptr) {
            whole = {many_.list[index].data(), index == count_ - 1 ? many_.last : many_.list[index].size()};
        } else {
            const std::size_t left = many_.skip + bytes_ - index * first_.size;
            whole = {first_.data + index * many_.stride, left < first_.size ? left : first_.size};
        }
        if (index == 0) whole = {whole.data + many_.skip, whole.size - many_.skip};
        return whole;
    }

    [[gnu::noinline]] constexpr piece piece_at_offset(std::size_t offset) const noexcept {
        const place found = locate(offset);
        if (found.index == count_) return {};
        const raw_piece whole = raw(found.index);
        return {whole.data + found.within, whole.size - found.within};
    }

    [[gnu::noinline]] constexpr basic_buffers slice_of_pieces(std::size_t offset, std::size_t most,
                                                              std::size_t pieces) const noexcept {
        place at = locate(offset);
        if (count_ > inline_pieces && pieces > inline_pieces) {
            const basic_buffers part = window(at, most, pieces);
            if (part.count_ > inline_pieces) return part;
        }
        basic_buffers cut;
        for (; cut.count_ < pieces && cut.count_ < inline_pieces && most > 0 && at.index < count_;
             ++at.index) {
            const raw_piece whole = raw(at.index);
            std::size_t size = whole.size - at.within;
            if (size > most) size = most;
            if (size != 0) {
                cut.set(cut.count_++, whole.data + at.within, size);
                cut.bytes_ += size;
                most -= size;
            }
            at.within = 0;
        }
        return cut;
    }

    /// Where the byte at `offset` is; `index` is `count_` at the end. Precondition: there are pieces.
    [[nodiscard]] constexpr place locate(std::size_t offset) const noexcept {
        if (offset >= bytes_) return {count_, 0};
        if (count_ > inline_pieces && many_.list == nullptr) {
            const std::size_t at = offset + many_.skip;
            const std::size_t index = at / first_.size;
            return {index, index == 0 ? offset : at % first_.size};
        }
        for (std::size_t i = 0;; ++i) {
            const std::size_t here = raw(i).size;
            if (offset < here) return {i, offset};
            offset -= here;
        }
    }

    /// A slice that goes on referring to the list or the blocks; to be used if it has more than `inline_pieces`.
    [[nodiscard]] constexpr basic_buffers window(place from, std::size_t most,
                                                 std::size_t pieces) const noexcept {
        basic_buffers part;
        const std::size_t skip = from.within + (from.index == 0 ? many_.skip : 0);
        if (many_.list != nullptr) {
            part.many_ = {many_.list + from.index, 0, skip, 0};
            for (; part.count_ < pieces && most > 0 && from.index < count_; ++from.index, ++part.count_) {
                const std::size_t here = raw(from.index).size - from.within;
                const std::size_t used = here < most ? here : most;
                part.many_.last = used + (part.count_ == 0 ? skip : 0);
                from.within = 0;
                part.bytes_ += used;
                most -= used;
            }
        } else if (from.index < count_) {
            part.first_ = {first_.data + from.index * many_.stride, first_.size};
            part.many_ = {nullptr, many_.stride, skip, 0};
            const std::size_t left = many_.skip + bytes_ - from.index * first_.size - skip;
            part.bytes_ = most < left ? most : left;
            part.count_ = (skip + part.bytes_ + first_.size - 1) / first_.size;
            if (part.count_ > pieces) {
                part.count_ = pieces;
                part.bytes_ = pieces * first_.size - skip;
            }
        }
        return part;
    }

    raw_piece first_;
    std::size_t bytes_;
    std::size_t count_;
    union {
        raw_piece rest_[inline_pieces - 1];  // only the first `count_ - 1` are set
        raw_many many_;
    };
};

/// Walks buffers from the beginning to the end, in time with the pieces that it passes. Refers to the buffers, which must
/// live as long.
template <class Byte>
class basic_buffer_cursor {
public:
    using piece = std::span<Byte>;  ///< one contiguous part

    /// Begins `offset` bytes behind the beginning; `over` must outlive the cursor.
    constexpr explicit basic_buffer_cursor(const basic_buffers<Byte>& over, std::size_t offset = 0) noexcept
        : over_(&over) {
        const auto at = over.locate(offset);
        index_ = at.index;
        if (index_ < over.pieces()) {
            here_ = over.raw(index_);
            skip(at.within);
        }
    }
    explicit basic_buffer_cursor(const basic_buffers<Byte>&&, std::size_t = 0) = delete;  // it would dangle

    /// The memory here as far as it is contiguous; empty only at the end.
    [[nodiscard]] constexpr piece here() const noexcept { return {here_.data, here_.size}; }
    /// Whether all bytes were passed.
    [[nodiscard]] constexpr bool at_end() const noexcept { return here_.size == 0; }

    /// Goes `bytes` on, at most to the end.
    constexpr void advance(std::size_t bytes) noexcept {
        while (bytes >= here_.size && here_.size != 0) {
            bytes -= here_.size;
            do {
                here_ = {nullptr, 0};
                if (++index_ < over_->pieces()) here_ = over_->raw(index_);
            } while (here_.size == 0 && index_ < over_->pieces());
        }
        if (here_.size != 0) skip(bytes);
    }

private:
    constexpr void skip(std::size_t bytes) noexcept {
        here_.data += bytes;
        here_.size -= bytes;
    }

    const basic_buffers<Byte>* over_;
    std::size_t index_;
    typename basic_buffers<Byte>::raw_piece here_{nullptr, 0};
};

/// Walks memory that is read.
using const_buffer_cursor = basic_buffer_cursor<const std::byte>;
/// Walks memory that is written.
using mutable_buffer_cursor = basic_buffer_cursor<std::byte>;

/// Memory a message is sent from.
using const_buffers = basic_buffers<const std::byte>;
/// Memory a message is received into.
using mutable_buffers = basic_buffers<std::byte>;

namespace detail {

/// A payload to be sent: buffers, or a contiguous range of trivially copyable elements.
template <class T>
inline constexpr bool sendable = std::is_convertible_v<T, const_buffers> || plain_range<T>;
/// A place to receive into: buffers, or such a range that may be written to.
template <class T>
inline constexpr bool receivable = std::is_convertible_v<T, mutable_buffers> || writable_range<T>;

/// The source of a put, and the place of a get: as above, in one piece.
template <class T>
inline constexpr bool one_piece_to_read =
    std::is_convertible_v<T, std::span<const std::byte>> || plain_range<T>;
template <class T>
inline constexpr bool one_piece_to_write =
    std::is_convertible_v<T, std::span<std::byte>> || writable_range<T>;

/// The argument itself where it converts to `Buffers`, the bytes of its elements otherwise.
template <class Buffers, class T>
[[nodiscard, gnu::always_inline]] inline decltype(auto) as_buffers(T&& from) noexcept {
    if constexpr (std::is_convertible_v<T, Buffers>) {
        return static_cast<T&&>(from);
    } else {
        return range_bytes(from);
    }
}

}  // namespace detail

namespace detail {

/// Pieces of which a temporary owns at least one: for use in the same statement.
template <class Buffers>
struct temporary_buffers : Buffers {
    static constexpr bool borrows_temporary = true;
};

/// The result of `gather` for arguments that were deduced as `Args&&...`.
template <class Buffers, class... Args>
using gathered = std::conditional_t<(... || owning_temporary<Args>), temporary_buffers<Buffers>, Buffers>;

}  // namespace detail

/// Several pieces as one message to send: `peer.send(gather(header, body))`. Each is text, or another contiguous range of
/// trivially copyable elements. Pieces that a temporary owns are refused by what outlives the statement.
template <class... Ranges>
    requires(sizeof...(Ranges) >= 1 && sizeof...(Ranges) <= const_buffers::inline_pieces &&
             (... && (std::is_convertible_v<const std::remove_reference_t<Ranges>&, const_buffers::piece> ||
                      detail::plain_range<const std::remove_reference_t<Ranges>&>)))
[[nodiscard]] detail::gathered<const_buffers, Ranges...> gather(Ranges&&... ranges) noexcept {
    const std::span<const std::byte> pieces[] = {
        detail::as_buffers<const_buffers::piece>(std::as_const(ranges))...};
    return {const_buffers(std::span<const std::span<const std::byte>>(pieces))};
}

/// Several pieces to receive one message into, filled in order: `peer.recv(scatter(header, body))`. Each is a contiguous range of
/// trivially copyable elements that are not const.
template <class... Ranges>
    requires(sizeof...(Ranges) >= 1 && sizeof...(Ranges) <= mutable_buffers::inline_pieces &&
             (... &&
              (std::is_convertible_v<Ranges&, mutable_buffers::piece> || detail::writable_range<Ranges&>)))
[[nodiscard]] mutable_buffers scatter(Ranges&&... ranges) noexcept {
    const std::span<std::byte> pieces[] = {detail::as_buffers<mutable_buffers::piece>(ranges)...};
    return mutable_buffers(std::span<const std::span<std::byte>>(pieces));
}

/// `count` blocks of `block_bytes` bytes as one message; each begins `stride_bytes` after the one before, as do the parts
/// of a matrix's column: `peer.send(strided(first, 8, row_bytes, rows))`. Stored by value for any `count`. Blocks to be
/// received into must not overlap, and all blocks must lie in memory that `base` points into.
///
/// Throws `errc::invalid_argument` when memory to be written overlaps (`stride_bytes` under `block_bytes`), or no memory
/// can be so long.
template <class Byte>
    requires(std::is_same_v<std::remove_const_t<Byte>, std::byte>)
[[nodiscard]] constexpr strided_blocks<Byte> strided(Byte* base, std::size_t block_bytes,
                                                     std::size_t stride_bytes, std::size_t count) {
    if (count == 0 || block_bytes == 0) return {base, 0, 0, 0};
    std::size_t end = 0;
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(stride_bytes, count - 1, &end) ||
        __builtin_add_overflow(end, block_bytes, &end) || __builtin_mul_overflow(block_bytes, count, &bytes))
        detail::throw_error(errc::invalid_argument, "strided: longer than memory can be");
    if (!std::is_const_v<Byte> && count > 1 && stride_bytes < block_bytes)
        detail::throw_error(errc::invalid_argument, "strided: the blocks to receive into overlap");
    return {base, block_bytes, stride_bytes, count};
}

/// The same of elements, all counted in elements: from `whole[first]` on, `count` blocks of `block` elements that begin
/// `stride` apart. Column `c` of a matrix: `strided(matrix, c, 1, columns, rows)`.
///
/// Throws `errc::invalid_argument` when a block is not within `whole`, or memory to be written overlaps.
template <class T, std::size_t Extent>
    requires(std::is_trivially_copyable_v<T> && !std::is_volatile_v<T>)
[[nodiscard]] strided_elements<T> strided(std::span<T, Extent> whole, std::size_t first, std::size_t block,
                                          std::size_t stride, std::size_t count) {
    std::size_t end = 0;
    if (first > whole.size() ||
        (count != 0 && block != 0 &&
         (block > whole.size() - first || __builtin_mul_overflow(stride, count - 1, &end) ||
          end > whole.size() - first - block)))
        detail::throw_error(errc::invalid_argument, "strided: a block lies outside of the whole");
    using byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return {
        strided(reinterpret_cast<byte*>(whole.data() + first), block * sizeof(T), stride * sizeof(T), count)};
}

/// The same of anything contiguous, such as a `std::vector<double>&`.
template <class Range>
    requires(!std::is_pointer_v<std::remove_cvref_t<Range>> && requires(Range& r) { std::span(r); })
[[nodiscard]] auto strided(Range& whole, std::size_t first, std::size_t block, std::size_t stride,
                           std::size_t count) {
    return strided(std::span(whole), first, block, stride, count);
}

namespace detail {

void copy_by_words(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// memcpy. The C library copies from 2 to 8 KiB on, depending on the processor, by one instruction, `rep movsb`, which AMD's Zen 3 and 4
/// execute at 2 GB/s, a twentieth of their speed, where the destination lies 1 to 31 bytes behind the source modulo a page (glibc bug
/// 30994): as a long vector, 16 bytes behind a page, lies behind a block that messages come in. Such copies are made by loads and stores.
[[gnu::always_inline]] inline void copy_long(std::byte* to, const std::byte* from,
                                             std::size_t bytes) noexcept {
#if defined(__x86_64__)
    constexpr std::size_t longer = 2048;
    constexpr std::uintptr_t page = 4096;
    if (bytes >= longer) [[unlikely]] {
        const auto behind =
            (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % page;
        if (behind - 1 < 31) return copy_by_words(to, from, bytes);
    }
#endif
    if (bytes != 0) std::memcpy(to, from, bytes);
}

/// The same, without a call for 8 to 32 bytes, which are copied by words, as short messages are mostly written. The C library loads pairs of
/// words: a processor does not forward two stores to one load, which waits until both are in the cache, behind all stores before them.
[[gnu::always_inline]] inline void copy_bytes(std::byte* to, const std::byte* from,
                                              std::size_t bytes) noexcept {
    constexpr std::size_t word = sizeof(std::uint64_t);
    const auto load = [from](std::size_t at) {
        std::uint64_t value = 0;
        std::memcpy(&value, from + at, word);
        return value;
    };
    const auto store = [to](std::size_t at, std::uint64_t value) { std::memcpy(to + at, &value, word); };
    if (bytes - word <= 3 * word) {  // 8 to 32: two or four words that may overlap
        const std::uint64_t first = load(0);
        const std::uint64_t last = load(bytes - word);
        if (bytes > 2 * word) {
            const std::uint64_t second = load(word);
            const std::uint64_t third = load(bytes - 2 * word);
            store(word, second);
            store(bytes - 2 * word, third);
        }
        store(0, first);
        store(bytes - word, last);
    } else {
        copy_long(to, from, bytes);
    }
}

// Copies of memory in several pieces.
void copy_out_pieces(const const_buffers& from, std::size_t offset, std::byte* to,
                     std::size_t bytes) noexcept;
void copy_in_pieces(std::span<const std::byte> from, const mutable_buffers& to, std::size_t offset) noexcept;

/// Copies `bytes` bytes that start at `offset` of `from` to `to`. Precondition: `from` has as many there.
inline void copy_out(const const_buffers& from, std::size_t offset, std::byte* to,
                     std::size_t bytes) noexcept {
    if (bytes == 0) return;
    if (!from.contiguous()) [[unlikely]]
        return copy_out_pieces(from, offset, to, bytes);
    copy_long(to, from.front().data() + offset, bytes);
}

/// Copies `from` into `to` from `offset` on, as far as it fits.
inline void copy_in(std::span<const std::byte> from, const mutable_buffers& to, std::size_t offset) noexcept {
    if (from.empty()) return;
    if (!to.contiguous()) [[unlikely]]
        return copy_in_pieces(from, to, offset);
    const std::span<std::byte> here = to.at_offset(offset);
    if (!here.empty())
        copy_long(here.data(), from.data(), here.size() < from.size() ? here.size() : from.size());
}

}  // namespace detail
}  // namespace rdmacoro

#if defined(RDMACORO_SEPARATE_COMPILATION)
extern template class rdmacoro::basic_buffers<const std::byte>;
extern template class rdmacoro::basic_buffers<std::byte>;
extern template class rdmacoro::basic_buffer_cursor<const std::byte>;
extern template class rdmacoro::basic_buffer_cursor<std::byte>;
#else
#include <rdmacoro/memory/impl/buffers.ipp>
#endif
