// The ring's cold parts: records of several cells and blocks, room that comes back, checks of the peer's writes.
#pragma once

#include <rdmacoro/transport/shm/ring.hpp>

#include <atomic>
#include <cstring>

#include <sys/mman.h>

namespace rdmacoro::detail::shm {

RDMACORO_DECL void ring_producer::attach(segment& shared, unsigned direction, const ring_consumer* beside) {
    beside_ = beside;
    ring_ = shared.ring(direction);
    blocks_ = shared.blocks(direction);
    words_ = &shared.words(direction);
    cells_ = shared.shape().cells;
    block_bytes_ = shared.shape().block_bytes;
    middle_ = new std::uint64_t[cells_ / 64]();
    block_count_ = shared.shape().blocks;
    for (std::uint32_t i = shared.shape().blocks; i-- > 0;)
        free_blocks_[free_count_++] = static_cast<std::uint8_t>(i);
}

RDMACORO_DECL bool ring_producer::has_room() noexcept {
    refresh();
    return cells_ - (tail_ - freed_) > cells_ / 4 && free_count_ != 0;
}

RDMACORO_COLD bool ring_producer::unread() const noexcept {
    const bool asleep = notice_wanted() != 0;
    const std::uint32_t cells = tail_ - words_->cells_freed.load(std::memory_order_acquire);
    if (cells > (asleep ? 0 : cells_ / 8) && cells <= cells_) return true;
    const std::uint32_t returned = words_->blocks_freed.load(std::memory_order_acquire) - blocks_returned_;
    const std::uint32_t blocks = block_count_ - free_count_;
    return returned <= blocks && blocks - returned > block_count_ / 2;
}

[[gnu::noinline]] RDMACORO_DECL bool ring_producer::refreshed_room(std::uint32_t cells) noexcept {
    refresh();
    return tail_ - freed_ + cells + 1 <= cells_;
}

RDMACORO_DECL void ring_producer::refresh() noexcept {
    const std::uint32_t freed = words_->cells_freed.load(std::memory_order_acquire);
    if (freed - freed_ > tail_ - freed_) {
        violated_ = true;
        return;
    }
    freed_ = freed;
    const std::uint32_t returned = words_->blocks_freed.load(std::memory_order_acquire);
    if (returned - blocks_returned_ > block_count_) {
        violated_ = true;
        return;
    }
    for (; blocks_returned_ != returned; ++blocks_returned_) {
        const std::uint16_t entry =
            words_->freed_blocks[blocks_returned_ % geometry::most_blocks].load(std::memory_order_relaxed);
        const std::uint16_t block = entry & 0xffu;
        if (block >= block_count_ || !lent_[block]) {
            violated_ = true;
            return;
        }
        lent_[block] = false;
        if (const auto cost = static_cast<std::uint8_t>(entry >> 8); cost != 0 && timed_[block])
            writes_.read(past_caches_[block], load_cost(cost));
        free_blocks_[free_count_++] = static_cast<std::uint8_t>(block);
    }
}

[[gnu::noinline]] RDMACORO_DECL bool ring_producer::put_long(record_type type, const message_header& header,
                                                             const const_buffers& payload) noexcept {
    const std::size_t bytes = payload.size();
    if (bytes <= most_in_ring) {
        const std::uint32_t cells = cells_for(bytes);
        if (tail_ - freed_ + cells + 1 > cells_ && !refreshed_room(cells)) return false;
        std::byte* cell = next_cell();
        std::memcpy(cell + 4, header.data(), message_header_bytes);
        copy_out(payload, 0, cell + record_prefix, bytes);
        for (std::uint32_t i = 1; i < cells; ++i) set_middle(tail_ + i);
        publish(cell, type, bytes, cells);
        return true;
    }
    refresh();  // each time, to reuse the block given back last: it is still in the caches
    if (violated_ || tail_ - freed_ + 2 > cells_ || free_count_ == 0) return false;
    const std::uint16_t block = free_blocks_[--free_count_];
    lent_[block] = true;
    blocks_used_ = true;
    const block_write how = write_block(writes_, blocks_ + std::size_t{block} * block_bytes_, payload);
    timed_[block] = how != block_write::untimed;
    past_caches_[block] = how == block_write::past_caches;
    std::byte* cell = next_cell();
    const std::uint32_t named[2] = {block | static_cast<std::uint32_t>(type) << 16,
                                    static_cast<std::uint32_t>(how == block_write::past_caches)};
    std::memcpy(cell + 4, header.data(), message_header_bytes);
    std::memcpy(cell + record_prefix, named, sizeof named);
    publish(cell, record_type::block, bytes, 1);
    return true;
}

RDMACORO_COLD bool ring_producer::may_return() const noexcept {
    if (violated_ || !holds_memory()) return false;
    if (tail_ != tried_ || words_->cells_freed.load(std::memory_order_relaxed) != returned_) return true;
    const std::uint32_t given_back = words_->blocks_freed.load(std::memory_order_relaxed) - blocks_returned_;
    return blocks_used_ && given_back == block_count_ - free_count_;
}

RDMACORO_COLD bool ring_producer::return_memory() noexcept {
    refresh();
    if (violated_) return true;
    tried_ = tail_;
    if (blocks_used_ && free_count_ == block_count_) {
        ::madvise(blocks_, block_bytes_ * block_count_, MADV_REMOVE);
        blocks_used_ = false;
    }
    if (freed_ == returned_) return !holds_memory();
    // The consumer may look at any cell that it has not given back, and at the one behind the last.
    constexpr std::uint32_t in_page = page_bytes / cell_bytes;
    const std::uint32_t pages = cells_ / in_page;
    const std::uint32_t first = (freed_ & (cells_ - 1)) / in_page;
    const std::uint32_t kept = tail_ == freed_ ? 0 : (freed_ % in_page + (tail_ - freed_) - 1) / in_page + 1;
    if (kept < pages)  // in one piece, as the ring is mapped twice in a row
        ::madvise(ring_ + std::size_t{first + kept} * page_bytes, std::size_t{pages - kept} * page_bytes,
                  MADV_REMOVE);
    returned_ = freed_;
    return !holds_memory();
}

[[gnu::noinline]] RDMACORO_DECL void ring_producer::end_lap() noexcept {
    turn_ = frame_word::next_turn(turn_);
    const std::uint32_t read = beside_ != nullptr ? beside_->position() : 0;
    ahead_ = read - read_ < cells_ / 8 ? ahead_one_way : ahead_both_ways;
    read_ = read;
}

[[gnu::noinline]] RDMACORO_DECL void ring_producer::clear(std::uint32_t position) noexcept {
    const std::uint32_t cell = position & (cells_ - 1);
    middle_[cell / 64] &= ~(std::uint64_t{1} << (cell % 64));
    auto* word = reinterpret_cast<std::uint32_t*>(ring_ + std::size_t{cell} * cell_bytes);
    std::atomic_ref<std::uint32_t>(*word).store(0, std::memory_order_relaxed);
}

RDMACORO_DECL void ring_consumer::attach(segment& shared, unsigned direction) {
    ring_ = shared.ring(direction);
    blocks_ = shared.blocks(direction);
    words_ = &shared.words(direction);
    cells_ = shared.shape().cells;
    eighth_mask_ = cells_ / 8 - 1;
    block_bytes_ = shared.shape().block_bytes;
    block_count_ = shared.shape().blocks;
}

[[gnu::noinline]] RDMACORO_DECL ring_consumer::found ring_consumer::peek(record& out) noexcept {
    std::byte* cell = head_cell();
    const std::uint32_t word = load_word(cell);
    if (frame_word::turn(word) != turn_) {
        if (word == 0 || frame_word::turn(word) == last_turn_) [[likely]]
            return found::nothing;
        return found::violation;
    }
    const std::size_t bytes = frame_word::length(word);
    const record_type type = frame_word::type(word);
    out.header = reinterpret_cast<const message_header*>(cell + 4);
    return describe(out, cell, type, bytes);
}

RDMACORO_DECL void ring_consumer::advance(const record& consumed, bool keep_block,
                                          std::uint8_t cost) noexcept {
    for (std::uint32_t n = 0; n < consumed.cells; ++n)
        unshare_line(head_cell() + std::size_t{n} * cell_bytes);
    step(consumed.cells);
    if (consumed.block >= 0) {
        held_[static_cast<std::size_t>(consumed.block)] = true;
        ++held_count_;
        if (!keep_block) free_block(static_cast<std::uint32_t>(consumed.block), cost);
    }
}

RDMACORO_DECL void ring_consumer::unshare_block(std::uint32_t block, std::size_t bytes) noexcept {
    std::byte* const at = blocks_ + std::size_t{block} * block_bytes_;
    for (std::size_t line = 0; line < bytes; line += cell_bytes) unshare_line(at + line);
}

RDMACORO_DECL void ring_consumer::free_block(std::uint32_t block, std::uint8_t cost) noexcept {
    held_[block] = false;
    --held_count_;
    words_->freed_blocks[blocks_freed_ % geometry::most_blocks].store(
        static_cast<std::uint16_t>(block | static_cast<std::uint32_t>(cost) << 8), std::memory_order_relaxed);
    words_->blocks_freed.store(++blocks_freed_, std::memory_order_release);
    gave_back_ = true;
}

RDMACORO_DECL void ring_consumer::set_closed() noexcept {
    words_->closed.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

[[gnu::noinline]] RDMACORO_DECL void ring_consumer::publish(std::uint32_t before) noexcept {
    if (((before ^ head_) & cells_) != 0) {
        last_turn_ = turn_;
        turn_ = frame_word::next_turn(turn_);
    }
    words_->cells_freed.store(head_, std::memory_order_release);
    gave_back_ = true;
}

RDMACORO_DECL ring_consumer::found ring_consumer::describe(record& out, std::byte* cell, record_type type,
                                                           std::size_t bytes) noexcept {
    out.type = type;
    out.block = -1;
    if (type == record_type::block) {
        std::uint32_t named[2];
        std::memcpy(named, cell + record_prefix, sizeof named);
        const std::uint32_t block = named[0] & 0xffffu;
        out.type = static_cast<record_type>(named[0] >> 16);
        if (block >= block_count_ || held_[block] || bytes > block_bytes_) return found::violation;
        if (out.type == record_type::block || out.type > record_type::put_reply) return found::violation;
        out.block = static_cast<std::int32_t>(block);
        out.in_caches = named[1] == 0;
        out.payload = {blocks_ + std::size_t{block} * block_bytes_, bytes};
        out.cells = 1;
        return found::record;
    }
    if (type > record_type::put_reply || bytes > most_in_ring) return found::violation;
    out.payload = {cell + record_prefix, bytes};
    out.cells = cells_for(bytes);
    return found::record;
}

}  // namespace rdmacoro::detail::shm
