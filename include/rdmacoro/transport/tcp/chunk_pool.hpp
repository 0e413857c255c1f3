// Blocks of memory that a domain's links send from and receive into, and that readers may borrow.
#pragma once

#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/memory/slab_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace rdmacoro::detail {

class tcp_chunk_pool;

/// The head of a block; the bytes follow it. Held by one link, lent to any number of readers; goes back to its pool when
/// it has no holder and no reader.
struct tcp_chunk {
    static constexpr std::size_t block_bytes = 64 * 1024;
    static constexpr std::size_t head_bytes = 64;
    static constexpr std::size_t capacity = block_bytes - head_bytes;

    tcp_chunk_pool* pool;
    std::uint32_t readers;
    bool held;

    [[nodiscard]] std::byte* bytes() noexcept { return reinterpret_cast<std::byte*>(this) + head_bytes; }
};
static_assert(sizeof(tcp_chunk) <= tcp_chunk::head_bytes);

/// Lives on the heap: it is destroyed when its domain has abandoned it and the last reader has given back its chunks.
class tcp_chunk_pool {
public:
    /// Chunks that readers may hold at a time. Each pins a block.
    static constexpr std::size_t most_lent = 256;
    static constexpr std::size_t most_chunks = 16 * 1024;  // a gigabyte

    /// Nullptr when the limit is reached or memory is short.
    [[nodiscard]] tcp_chunk* take() noexcept {
        std::byte* block = blocks_.take();
        if (block == nullptr) return nullptr;
        return new (block) tcp_chunk{this, 0, true};
    }

    /// Called by the link that took it, which has no more use for it.
    void drop(tcp_chunk& chunk) noexcept {
        chunk.held = false;
        if (chunk.readers == 0) blocks_.give(reinterpret_cast<std::byte*>(&chunk));
    }

    /// Lends a part of a chunk; empty when too many are lent.
    [[nodiscard]] lent_buffer lend(tcp_chunk& chunk, std::span<const std::byte> part) noexcept {
        if (chunk.readers == 0) {
            if (lent_ >= most_lent) return {};
            ++lent_;
        }
        ++chunk.readers;
        return {part, &give_back, &chunk, 0};
    }

    [[nodiscard]] std::size_t in_use() const noexcept { return blocks_.in_use(); }
    [[nodiscard]] std::size_t lent() const noexcept { return lent_; }

    /// Called by the domain when it is destroyed.
    void abandon() noexcept {
        abandoned_ = true;
        delete_if_unused();
    }

private:
    ~tcp_chunk_pool() = default;

    static void give_back(void* owner, std::uint64_t) noexcept {
        auto& chunk = *static_cast<tcp_chunk*>(owner);
        tcp_chunk_pool& pool = *chunk.pool;
        if (--chunk.readers != 0) return;
        --pool.lent_;
        if (!chunk.held) pool.blocks_.give(reinterpret_cast<std::byte*>(&chunk));
        pool.delete_if_unused();
    }

    void delete_if_unused() noexcept {
        if (abandoned_ && lent_ == 0) delete this;
    }

    slab_pool blocks_{tcp_chunk::block_bytes, 16, most_chunks};
    std::size_t lent_ = 0;
    bool abandoned_ = false;
};

}  // namespace rdmacoro::detail
