// How a slab pool grows, moves and is freed.
#pragma once

#include <rdmacoro/memory/slab_pool.hpp>

#include <new>
#include <utility>

namespace rdmacoro {

RDMACORO_COLD slab_pool::slab_pool(slab_pool&& other) noexcept
    : block_bytes_(other.block_bytes_),
      blocks_per_slab_(other.blocks_per_slab_),
      most_blocks_(other.most_blocks_),
      free_(std::exchange(other.free_, nullptr)),
      in_use_(std::exchange(other.in_use_, 0)),
      slabs_(std::move(other.slabs_)) {}

RDMACORO_COLD slab_pool& slab_pool::operator=(slab_pool&& other) noexcept {
    if (this == &other) return *this;
    trim();
    block_bytes_ = other.block_bytes_;
    blocks_per_slab_ = other.blocks_per_slab_;
    most_blocks_ = other.most_blocks_;
    free_ = std::exchange(other.free_, nullptr);
    in_use_ = std::exchange(other.in_use_, 0);
    slabs_ = std::move(other.slabs_);
    return *this;
}

RDMACORO_COLD void slab_pool::trim() noexcept {
    free_ = nullptr;
    for (std::byte* const memory : slabs_) {
        detail::unpoison(memory, block_bytes_ * blocks_per_slab_);
        ::operator delete(memory, std::align_val_t(alignment));
    }
    slabs_.clear();
}

[[gnu::noinline]] RDMACORO_DECL bool slab_pool::grow() noexcept {
    if (capacity() + blocks_per_slab_ > most_blocks_ && capacity() > 0) return false;
    std::size_t bytes = 0;
    if (blocks_per_slab_ == 0 || __builtin_mul_overflow(block_bytes_, blocks_per_slab_, &bytes)) return false;
    if (!slabs_.try_reserve(slabs_.size() + 1)) return false;
    auto* const memory =
        static_cast<std::byte*>(::operator new(bytes, std::align_val_t(alignment), std::nothrow));
    if (memory == nullptr) return false;
    static_cast<void>(slabs_.try_push_back(memory));
    for (std::size_t i = blocks_per_slab_; i-- > 0;) {
        auto* const block = reinterpret_cast<free_block*>(memory + i * block_bytes_);
        block->next = free_;
        free_ = block;
    }
    detail::poison(memory, bytes);
    return true;
}

}  // namespace rdmacoro
