// How a peer's memory is mapped and copied.
#pragma once

#include <rdmacoro/transport/shm/peer_memory.hpp>

#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/transport/shm/arena.hpp>

#include <cstring>
#include <utility>

#include <sys/mman.h>

namespace rdmacoro::detail::shm {

RDMACORO_COLD peer_memory::~peer_memory() {
    if (table_ != nullptr) ::munmap(table_, table_bytes_);
    if (boards_ != nullptr) ::munmap(boards_, notice_board_bytes + (arena_ != nullptr ? arena_bytes_ : 0));
    if (arena_ != nullptr) arenas_mapped -= arena_bytes_;
}

RDMACORO_COLD void peer_memory::map_table(int fd, std::uint64_t entries, const region_salt& salt) {
    if (entries == 0 || entries > (1u << key_source::slot_bits))
        throw_named(errc::protocol_violation, "region table");
    const std::size_t asleep_at = (entries * sizeof(region_entry) + page_bytes - 1) / page_bytes * page_bytes;
    const std::size_t bytes = asleep_at + page_bytes;
    segment::check_file(fd, bytes, "the peer's region table");
    void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) throw_errno("mmap of the peer's region table");
    table_ = mapped;
    table_bytes_ = bytes;
    entries_ = {static_cast<const region_entry*>(mapped), entries};
    asleep_ = reinterpret_cast<const std::atomic<std::uint32_t>*>(static_cast<const std::byte*>(mapped) +
                                                                  asleep_at);
    salt_ = salt;
}

RDMACORO_COLD void peer_memory::map_arena(int fd, std::uint64_t peer_base, std::uint64_t bytes) {
    if (bytes == 0 || bytes > arena::most_bytes || bytes % page_bytes != 0)
        throw_named(errc::protocol_violation, "shared arena");
    segment::check_file(fd, bytes + notice_board_bytes, "the peer's shared arena");
    void* mapped =
        ::mmap(nullptr, notice_board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (mapped == MAP_FAILED) throw_errno("mmap of the peer's notice board");
    boards_ = static_cast<notice_boards*>(mapped);
    if (bytes > most_arena) return;
    arena_bytes_ = bytes;
    arena_base_ = peer_base;
}

RDMACORO_COLD bool peer_memory::open_arena() noexcept {
    if (arena_ != nullptr) return true;
    // Not before it is used: what peers offer and do not use must not keep the arena of another out.
    if (!reserve_arena(arena_bytes_)) {
        arena_bytes_ = 0;  // it is reached like the rest of the peer's memory
        return false;
    }
    // The file begins with the board: its mapping grows over the rest, and the descriptor is not needed again.
    ::munlock(boards_,
              notice_board_bytes);  // after mlockall(MCL_FUTURE) mremap would take memory for all of it
    void* grown = ::mremap(boards_, notice_board_bytes, notice_board_bytes + arena_bytes_, MREMAP_MAYMOVE);
    if (grown == MAP_FAILED) {
        arenas_mapped -= arena_bytes_;
        arena_bytes_ = 0;
        return false;
    }
    boards_ = static_cast<notice_boards*>(grown);
    arena_ = static_cast<std::byte*>(grown) + notice_board_bytes;
    return true;
}

RDMACORO_COLD void peer_memory::release_pages() noexcept {
    if (!std::exchange(uses_pages_, false)) return;
    if (table_ != nullptr) ::madvise(table_, table_bytes_, MADV_DONTNEED);
    if (boards_ != nullptr)
        ::madvise(boards_, notice_board_bytes + (arena_ != nullptr ? arena_bytes_ : 0), MADV_DONTNEED);
}

RDMACORO_COLD bool peer_memory::reserve_arena(std::uint64_t bytes) noexcept {
    if (arenas_mapped.fetch_add(bytes) + bytes <= most_arenas) return true;
    arenas_mapped -= bytes;
    return false;
}

RDMACORO_COLD void peer_memory::reach_through(peer_process process) noexcept {
    process_ = std::move(process);
    vm_allowed_ = process_.reachable();
}

RDMACORO_COLD errc peer_memory::copy(bool read, std::uint64_t address, std::byte* local,
                                     std::size_t bytes) noexcept {
    if (in_arena(address, bytes) && open_arena()) {
        std::byte* there = arena_ + (address - arena_base_);
        if (read) {
            copy_long(local, there, bytes);
        } else {
            copy_long(there, local, bytes);
        }
        return errc::ok;
    }
    // Else the process is known by its number at most, which may name another one by now.
    if (!vm_allowed_) return errc::unsupported;
    const errc outcome = process_.copy(read, address, local, bytes);
    if (outcome == errc::unsupported) vm_allowed_ = false;
    return outcome;
}

}  // namespace rdmacoro::detail::shm
