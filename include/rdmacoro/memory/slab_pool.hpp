// slab_pool: fixed-size blocks cut from slabs, recycled, bounded.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/memory/detail/poison.hpp>

#include <cstddef>
#include <span>

namespace rdmacoro {

/// Blocks of one size, 64-byte aligned, cut from slabs that are allocated as they are needed, up to a limit. Taking and
/// returning a block takes constant time and, once enough slabs exist, allocates nothing. Slabs do not move, so that a
/// transport can register each once. AddressSanitizer reports accesses to blocks that are not taken.
class slab_pool {
public:
    static constexpr std::size_t alignment = 64;  ///< of each block, in bytes

    /// `block_bytes` is rounded up to the alignment, and is 64 at least. `blocks_per_slab` and `most_blocks` are at least 1. Slabs are
    /// whole: but for the first, none is made that would bring the blocks above `most_blocks`. Where a slab would have more bytes than there are addresses, there are no blocks.
    slab_pool(std::size_t block_bytes, std::size_t blocks_per_slab, std::size_t most_blocks) noexcept
        : block_bytes_(rounded(block_bytes)), blocks_per_slab_(blocks_per_slab), most_blocks_(most_blocks) {}

    slab_pool(slab_pool&& other) noexcept;
    slab_pool& operator=(slab_pool&& other) noexcept;
    ~slab_pool() { trim(); }

    /// A block of `block_bytes()`, or nullptr when the limit is reached or memory is short.
    [[nodiscard]] std::byte* take() noexcept {
        if (free_ == nullptr && !grow()) return nullptr;
        free_block* const block = free_;
        detail::unpoison(block, block_bytes_);
        free_ = block->next;
        ++in_use_;
        return reinterpret_cast<std::byte*>(block);
    }

    /// Returns a block of this pool.
    void give(std::byte* memory) noexcept {
        auto* const block = reinterpret_cast<free_block*>(memory);
        block->next = free_;
        detail::poison(block, block_bytes_);
        free_ = block;
        --in_use_;
    }

    /// Frees all slabs. No block may be in use.
    void trim() noexcept;

    /// The size of each block.
    [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
    /// Blocks taken and not given back.
    [[nodiscard]] std::size_t in_use() const noexcept { return in_use_; }
    /// Blocks that exist, free or in use.
    [[nodiscard]] std::size_t capacity() const noexcept { return slabs_.size() * blocks_per_slab_; }
    /// Slabs made so far.
    [[nodiscard]] std::size_t slabs() const noexcept { return slabs_.size(); }
    /// The memory of slab `index`, for registration.
    [[nodiscard]] std::span<std::byte> slab(std::size_t index) noexcept {
        return {slabs_[index], block_bytes_ * blocks_per_slab_};
    }

private:
    struct free_block {
        free_block* next;
    };
    [[nodiscard]] static constexpr std::size_t rounded(std::size_t bytes) noexcept {
        if (bytes == 0) return alignment;
        if (bytes > static_cast<std::size_t>(-1) - alignment)
            return static_cast<std::size_t>(-1) / alignment * alignment;
        return (bytes + alignment - 1) / alignment * alignment;
    }
    bool grow() noexcept;

    std::size_t block_bytes_;
    std::size_t blocks_per_slab_;
    std::size_t most_blocks_;
    free_block* free_ = nullptr;
    std::size_t in_use_ = 0;
    detail::plain_vector<std::byte*> slabs_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/memory/impl/slab_pool.ipp>
#endif
