// Gathered buffers: one message from, or into, several pieces of memory.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace rdmacoro {

/// A message's memory: one piece or several, in order. Borrows the memory; up to `inline_pieces` pieces are kept by
/// value, a longer list stays in the caller's array, which must live as long as this.
///
/// `Byte` is `const std::byte` (to send from) or `std::byte` (to receive into).
template <class Byte>
class basic_buffers {
public:
    using piece = std::span<Byte>;
    static constexpr std::size_t inline_pieces = 3;

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
            for (std::size_t i = 0; i < count_; ++i) at(i) = {pieces[i].data(), pieces[i].size()};
        } else {
            more_ = pieces.data();
        }
        for (const piece& p : pieces) bytes_ += p.size();
    }

    /// The sum of the pieces' lengths, in bytes.
    [[nodiscard]] constexpr std::size_t size() const noexcept { return bytes_; }
    [[nodiscard]] constexpr bool empty() const noexcept { return bytes_ == 0; }
    [[nodiscard]] constexpr std::size_t pieces() const noexcept { return count_; }
    [[nodiscard]] constexpr bool contiguous() const noexcept { return count_ <= 1; }

    /// The only piece. Precondition: `contiguous()`.
    [[nodiscard]] constexpr piece front() const noexcept { return {first_.data, first_.size}; }

    [[nodiscard]] constexpr piece operator[](std::size_t index) const noexcept {
        if (index == 0 && count_ <= inline_pieces) return {first_.data, first_.size};
        if (count_ <= inline_pieces) return {rest_[index - 1].data, rest_[index - 1].size};
        return more_[index];
    }

    /// The memory at `offset` as far as it is contiguous; empty at the end.
    [[nodiscard]] constexpr piece at_offset(std::size_t offset) const noexcept {
        if (count_ <= 1) return offset < bytes_ ? piece(first_.data + offset, first_.size - offset) : piece();
        for (std::size_t i = 0; i < count_; ++i) {
            const piece p = (*this)[i];
            if (offset < p.size()) return p.subspan(offset);
            offset -= p.size();
        }
        return {};
    }

    /// From `offset` on, at most `most` bytes: less where that takes more than `pieces` pieces.
    [[nodiscard]] constexpr basic_buffers slice(std::size_t offset, std::size_t most,
                                                std::size_t pieces = inline_pieces) const noexcept {
        if (count_ <= 1)
            return basic_buffers(at_offset(offset).first(offset + most < bytes_ ? most : bytes_ - offset));
        basic_buffers cut;
        while (cut.count_ < pieces && cut.count_ < inline_pieces && most > 0) {
            piece next = at_offset(offset);
            if (next.empty()) break;
            if (next.size() > most) next = next.first(most);
            cut.at(cut.count_++) = {next.data(), next.size()};
            cut.bytes_ += next.size();
            offset += next.size();
            most -= next.size();
        }
        return cut;
    }

private:
    struct raw_piece {
        Byte* data;
        std::size_t size;
    };
    constexpr raw_piece& at(std::size_t index) noexcept { return index == 0 ? first_ : rest_[index - 1]; }

    raw_piece first_;
    std::size_t bytes_;
    std::size_t count_;
    union {
        raw_piece rest_[inline_pieces - 1];  // set only as far as count_ says
        const piece* more_;
    };
};

/// Memory a message is sent from.
using const_buffers = basic_buffers<const std::byte>;
/// Memory a message is received into.
using mutable_buffers = basic_buffers<std::byte>;

/// Several pieces as one message to send: `peer.send(gather(header, body))`.
template <class... Ranges>
    requires(sizeof...(Ranges) >= 1 && sizeof...(Ranges) <= const_buffers::inline_pieces)
[[nodiscard]] const_buffers gather(const Ranges&... ranges) noexcept {
    const std::span<const std::byte> pieces[] = {std::span<const std::byte>(ranges)...};
    return const_buffers(std::span<const std::span<const std::byte>>(pieces));
}

/// Several pieces to receive one message into, filled in order: `peer.recv(scatter(header, body))`.
template <class... Ranges>
    requires(sizeof...(Ranges) >= 1 && sizeof...(Ranges) <= mutable_buffers::inline_pieces)
[[nodiscard]] mutable_buffers scatter(Ranges&&... ranges) noexcept {
    const std::span<std::byte> pieces[] = {std::span<std::byte>(ranges)...};
    return mutable_buffers(std::span<const std::span<std::byte>>(pieces));
}

namespace detail {

/// memcpy, without the call for the short messages that latency is measured with.
[[gnu::always_inline]] inline void copy_bytes(std::byte* to, const std::byte* from,
                                              std::size_t bytes) noexcept {
    if (bytes - 8 <= 8) {  // 8 to 16: two words that may overlap
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        std::memcpy(&first, from, 8);
        std::memcpy(&last, from + bytes - 8, 8);
        std::memcpy(to, &first, 8);
        std::memcpy(to + bytes - 8, &last, 8);
    } else if (bytes != 0) {
        std::memcpy(to, from, bytes);
    }
}

/// Copies `bytes` bytes that start at `offset` of `from` to `to`.
inline void copy_out(const const_buffers& from, std::size_t offset, std::byte* to,
                     std::size_t bytes) noexcept {
    while (bytes > 0) {
        const std::span<const std::byte> piece = from.at_offset(offset);
        const std::size_t now = piece.size() < bytes ? piece.size() : bytes;
        std::memcpy(to, piece.data(), now);
        to += now;
        offset += now;
        bytes -= now;
    }
}

/// Copies `from` into `to` from `offset` on, as far as it fits.
inline void copy_in(std::span<const std::byte> from, const mutable_buffers& to, std::size_t offset) noexcept {
    while (!from.empty()) {
        const std::span<std::byte> piece = to.at_offset(offset);
        if (piece.empty()) return;
        const std::size_t now = piece.size() < from.size() ? piece.size() : from.size();
        std::memcpy(piece.data(), from.data(), now);
        from = from.subspan(now);
        offset += now;
    }
}

}  // namespace detail
}  // namespace rdmacoro
