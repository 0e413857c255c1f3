// Copies from and into memory in several pieces.
#pragma once

#include <rdmacoro/memory/buffers.hpp>

namespace rdmacoro {

#if defined(RDMACORO_SEPARATE_COMPILATION)
template class basic_buffers<const std::byte>;
template class basic_buffers<std::byte>;
template class basic_buffer_cursor<const std::byte>;
template class basic_buffer_cursor<std::byte>;
#endif

namespace detail {

/// Loads and stores of 16 bytes, four at a time.
[[gnu::noinline]] RDMACORO_DECL void copy_by_words(std::byte* to, const std::byte* from,
                                                   std::size_t bytes) noexcept {
    using words = long long __attribute__((vector_size(16)));
    constexpr std::size_t line = 4 * sizeof(words);
    for (; bytes >= line; bytes -= line, to += line, from += line) {
        words part[4];
        std::memcpy(part, from, line);
        std::memcpy(to, part, line);
        asm volatile("" : : : "memory");  // or the compiler makes a memcpy of the loop
    }
    if (bytes != 0) std::memcpy(to, from, bytes);
}

[[gnu::noinline]] RDMACORO_DECL void copy_out_pieces(const const_buffers& from, std::size_t offset,
                                                     std::byte* to, std::size_t bytes) noexcept {
    for (const_buffer_cursor at(from, offset); bytes > 0 && !at.at_end();) {
        const std::size_t now = at.here().size() < bytes ? at.here().size() : bytes;
        copy_bytes(to, at.here().data(), now);
        to += now;
        bytes -= now;
        at.advance(now);
    }
}

[[gnu::noinline]] RDMACORO_DECL void copy_in_pieces(std::span<const std::byte> from,
                                                    const mutable_buffers& to, std::size_t offset) noexcept {
    const std::byte* data = from.data();
    std::size_t left = from.size();
    for (mutable_buffer_cursor at(to, offset); left > 0 && !at.at_end();) {
        const std::size_t now = at.here().size() < left ? at.here().size() : left;
        copy_bytes(at.here().data(), data, now);
        data += now;
        left -= now;
        at.advance(now);
    }
}

}  // namespace detail
}  // namespace rdmacoro
