// The shared arena's pages: first fit, and given back to the system when they are free.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/transport/shm/arena.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rdmacoro::detail::shm {

RDMACORO_COLD arena::~arena() {
    while (arena_hold* by = holds_.pop_front()) by->released();
    if (base_ != nullptr) ::munmap(base_ - notice_board_bytes, bytes_ + notice_board_bytes);
    while (awaited_ != nullptr) keep_spare(std::exchange(awaited_, awaited_->next));
    while (free_ != nullptr) keep_spare(std::exchange(free_, free_->next));
    while (spare_ != nullptr) delete std::exchange(spare_, spare_->next);
}

RDMACORO_COLD shared_memory arena::allocate(std::size_t bytes) {
    require_thread_of(owner_, "shared memory of", "was allocated");
    open();
    add_spare();
    end_holds();
    const std::size_t wanted = bytes == 0 ? page_bytes : (bytes + page_bytes - 1) / page_bytes * page_bytes;
    for (range** at = &free_; *at != nullptr; at = &(*at)->next) {
        range* found = *at;
        if (found->bytes < wanted || wanted < bytes)
            continue;  // near the largest number rounding wraps around
        const std::size_t offset = found->offset;
        found->offset += wanted;
        found->bytes -= wanted;
        if (found->bytes == 0) {
            *at = found->next;
            keep_spare(found);
        }
        ++pieces_;
        return shared_memory(*this, {base_ + offset, wanted});
    }
    throw_named(errc::no_resources, "the shared arena is full; raise shm_options::arena_bytes");
}

RDMACORO_COLD void arena::give_back(std::span<std::byte> piece) noexcept {
    require_thread_of(owner_, "shared memory of", "was given back");
    --pieces_;
    if (holds(piece)) {
        awaited_ = take_spare(static_cast<std::size_t>(piece.data() - base_), piece.size(), awaited_);
    } else {
        make_free(piece);
    }
}

RDMACORO_COLD bool arena::hold(arena_hold& by, std::span<std::byte> memory) noexcept {
    if (base_ == nullptr || memory.data() < base_ || memory.data() >= base_ + bytes_) return false;
    by.unlink();
    by.range_ = memory;
    holds_.push_back(by);
    return true;
}

RDMACORO_COLD bool arena::holds(std::span<std::byte> piece) noexcept {
    for (arena_hold* by = holds_.front(); by != nullptr; by = holds_.next(*by)) {
        const std::byte* const end = by->range_.data() + by->range_.size();
        if (by->range_.data() < piece.data() + piece.size() && piece.data() < end) return true;
    }
    return false;
}

RDMACORO_COLD void arena::end_holds() noexcept {
    for (arena_hold* by = holds_.front(); by != nullptr;) {
        arena_hold* const after = holds_.next(*by);
        if (by->over()) {
            by->unlink();
            by->released();
        }
        by = after;
    }
    range* still = nullptr;
    while (awaited_ != nullptr) {
        range* const each = std::exchange(awaited_, awaited_->next);
        const std::span<std::byte> piece(base_ + each->offset, each->bytes);
        if (holds(piece)) {
            each->next = std::exchange(still, each);
        } else {
            keep_spare(each);
            make_free(piece);
        }
    }
    awaited_ = still;
}

RDMACORO_COLD void arena::make_free(std::span<std::byte> piece) noexcept {
    const std::size_t offset = static_cast<std::size_t>(piece.data() - base_);
    // Frees the pages; the next user finds zeros. Not by MADV_REMOVE, which memory that is locked (mlock, mlockall) refuses.
    if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(notice_board_bytes + offset), static_cast<off_t>(piece.size())) != 0)
        std::memset(piece.data(), 0, piece.size());
    range* before = nullptr;
    range* after = free_;
    for (; after != nullptr && after->offset < offset; after = after->next) before = after;
    if (before != nullptr && before->offset + before->bytes == offset) {
        before->bytes += piece.size();
    } else {
        range* made = take_spare(offset, piece.size(), after);
        (before != nullptr ? before->next : free_) = made;
        before = made;
    }
    if (after != nullptr && before->offset + before->bytes == after->offset) {
        before->bytes += after->bytes;
        before->next = after->next;
        keep_spare(after);
    }
}

RDMACORO_COLD arena::range* arena::take_spare(std::size_t offset, std::size_t bytes, range* next) noexcept {
    range* taken = std::exchange(spare_, spare_->next);
    --spares_;
    *taken = {offset, bytes, next};
    return taken;
}

RDMACORO_COLD void arena::keep_spare(range* unused) noexcept {
    unused->next = std::exchange(spare_, unused);
    ++spares_;
}

RDMACORO_COLD void arena::add_spare() {
    if (spares_ <= pieces_) keep_spare(new range{});
}

RDMACORO_COLD void arena::open() {
    if (base_ != nullptr) return;
    if (free_ == nullptr) free_ = new range{0, bytes_, nullptr};
    const std::size_t all = bytes_ + notice_board_bytes;
    unique_fd fd = make_memfd("rdmacoro-arena", all, "the shared arena", "shm_options::arena_bytes");
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        throw_errno("sealing the shared arena");
    void* mapped = ::mmap(nullptr, all, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
    if (mapped == MAP_FAILED) throw_errno("mmap of the shared arena");
    // Not at once: after mlockall(MCL_FUTURE) mmap takes memory for all that may be touched.
    if (::mprotect(mapped, all, PROT_READ | PROT_WRITE) != 0) {
        ::munmap(mapped, all);
        throw_errno("mprotect of the shared arena");
    }
    base_ = static_cast<std::byte*>(mapped) + notice_board_bytes;
    fd_ = std::move(fd);
}

}  // namespace rdmacoro::detail::shm

namespace rdmacoro {

RDMACORO_COLD void shared_memory::reset() noexcept {
    if (owner_ != nullptr) std::exchange(owner_, nullptr)->give_back(bytes_);
    bytes_ = {};
}

}  // namespace rdmacoro
