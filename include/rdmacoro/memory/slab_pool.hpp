// slab_pool: fixed-size blocks cut from slabs, recycled, bounded.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace rdmacoro {

/// Blocks of one size, 64-byte aligned, cut from slabs that are allocated as they are needed, up to a limit. Taking and
/// giving back is constant time and, once the pool has grown to what is in use, allocates nothing. Slabs stay where they
/// are, so that a transport can register each once.
class slab_pool {
public:
    static constexpr std::size_t alignment = 64;

    /// `block_bytes` is rounded up to the alignment. `blocks_per_slab` and `most_blocks` are at least 1.
    slab_pool(std::size_t block_bytes, std::size_t blocks_per_slab, std::size_t most_blocks) noexcept
        : block_bytes_((block_bytes + alignment - 1) / alignment * alignment),
          blocks_per_slab_(blocks_per_slab),
          most_blocks_(most_blocks) {}

    slab_pool(slab_pool&&) noexcept = default;
    slab_pool& operator=(slab_pool&&) noexcept = default;

    /// A block of `block_bytes()`, or nullptr when the limit is reached or memory is short.
    [[nodiscard]] std::byte* take() noexcept {
        if (free_ == nullptr && !grow()) return nullptr;
        free_block* block = free_;
        free_ = block->next;
        ++in_use_;
        return reinterpret_cast<std::byte*>(block);
    }

    /// Gives a block of this pool back.
    void give(std::byte* memory) noexcept {
        auto* block = reinterpret_cast<free_block*>(memory);
        block->next = free_;
        free_ = block;
        --in_use_;
    }

    /// Frees all slabs. No block may be in use.
    void trim() noexcept {
        free_ = nullptr;
        slabs_.clear();
    }

    [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
    [[nodiscard]] std::size_t in_use() const noexcept { return in_use_; }
    /// Blocks that exist, free or in use.
    [[nodiscard]] std::size_t capacity() const noexcept { return slabs_.size() * blocks_per_slab_; }
    [[nodiscard]] std::size_t slabs() const noexcept { return slabs_.size(); }
    /// The memory of slab `index`, for registration.
    [[nodiscard]] std::span<std::byte> slab(std::size_t index) noexcept {
        return {slabs_[index].get(), block_bytes_ * blocks_per_slab_};
    }

private:
    struct free_block {
        free_block* next;
    };
    struct aligned_delete {
        void operator()(std::byte* memory) const noexcept {
            ::operator delete(memory, std::align_val_t(alignment));
        }
    };

    [[gnu::noinline]] bool grow() noexcept {
        if (capacity() + blocks_per_slab_ > most_blocks_ && capacity() > 0) return false;
        const std::size_t bytes = block_bytes_ * blocks_per_slab_;
        auto* memory =
            static_cast<std::byte*>(::operator new(bytes, std::align_val_t(alignment), std::nothrow));
        if (memory == nullptr) return false;
        std::unique_ptr<std::byte, aligned_delete> slab(memory);
        try {
            slabs_.push_back(std::move(slab));
        } catch (const std::bad_alloc&) {
            return false;
        }
        for (std::size_t i = blocks_per_slab_; i-- > 0;) {
            auto* block = reinterpret_cast<free_block*>(memory + i * block_bytes_);
            block->next = free_;
            free_ = block;
        }
        return true;
    }

    std::size_t block_bytes_;
    std::size_t blocks_per_slab_;
    std::size_t most_blocks_;
    free_block* free_ = nullptr;
    std::size_t in_use_ = 0;
    std::vector<std::unique_ptr<std::byte, aligned_delete>> slabs_;
};

}  // namespace rdmacoro
