// A peer's memory as this process can reach it: by process_vm_readv/writev, or directly in the peer's shared arena.
#pragma once

#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <cstdint>
#include <cstring>
#include <span>

#include <sys/prctl.h>
#include <sys/uio.h>

namespace rdmacoro::detail::shm {

/// What of a peer's memory is mapped here, and how to reach the rest.
class peer_memory {
public:
    peer_memory() noexcept = default;
    peer_memory(const peer_memory&) = delete;
    peer_memory& operator=(const peer_memory&) = delete;
    ~peer_memory() {
        if (table_ != nullptr) ::munmap(table_, table_bytes_);
        if (arena_ != nullptr) ::munmap(arena_, arena_bytes_);
    }

    /// Maps the peer's table of regions, read-only. Throws.
    void map_table(int fd, std::uint64_t entries) {
        if (entries == 0 || entries > (1u << key_source::slot_bits))
            throw error(errc::protocol_violation, "region table");
        const std::size_t bytes = (entries * sizeof(region_entry) + page_bytes - 1) / page_bytes * page_bytes;
        segment::check_file(fd, bytes, "the peer's region table");
        void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) throw_errno("mmap of the peer's region table");
        table_ = mapped;
        table_bytes_ = bytes;
        entries_ = {static_cast<const region_entry*>(mapped), entries};
    }

    /// Maps the peer's arena, which it has at `peer_base`. Throws.
    void map_arena(int fd, std::uint64_t peer_base, std::uint64_t bytes) {
        if (bytes == 0 || bytes > (std::uint64_t{1} << 46))
            throw error(errc::protocol_violation, "shared arena");
        segment::check_file(fd, bytes, "the peer's shared arena");
        void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (mapped == MAP_FAILED) throw_errno("mmap of the peer's shared arena");
        arena_ = static_cast<std::byte*>(mapped);
        arena_bytes_ = bytes;
        arena_base_ = peer_base;
    }

    /// Finds out whether the kernel lets us read that process: reads the word at `address`, which holds `expected`.
    void probe(pid_t pid, std::uint64_t address, std::uint64_t expected) noexcept {
        pid_ = pid;
        std::uint64_t word = 0;
        vm_allowed_ = pid > 0 &&
                      transfer(true, address, reinterpret_cast<std::byte*>(&word), sizeof word) == errc::ok &&
                      word == expected;
    }
    void forbid_process_vm() noexcept { vm_allowed_ = false; }

    /// Whether everything registered can be reached without the peer's help.
    [[nodiscard]] bool vm_allowed() const noexcept { return vm_allowed_; }

    /// Whether this range can be reached without the peer's help.
    [[nodiscard]] bool reaches(std::uint64_t address, std::uint64_t bytes) const noexcept {
        return vm_allowed_ || in_arena(address, bytes);
    }

    [[nodiscard]] errc check(const remote_region& there, access_rights wanted) const noexcept {
        return check_access(entries_, there.key, there.address, there.length, wanted);
    }

    /// Copies; the range has been checked. `errc::unsupported` when the kernel no longer lets us.
    [[nodiscard]] errc copy(bool read, std::uint64_t address, std::byte* local, std::size_t bytes) noexcept {
        if (in_arena(address, bytes)) {
            std::byte* there = arena_ + (address - arena_base_);
            if (read) {
                std::memcpy(local, there, bytes);
            } else {
                std::memcpy(there, local, bytes);
            }
            return errc::ok;
        }
        const errc outcome = transfer(read, address, local, bytes);
        if (outcome == errc::unsupported) vm_allowed_ = false;
        return outcome;
    }

private:
    [[nodiscard]] bool in_arena(std::uint64_t address, std::uint64_t bytes) const noexcept {
        return arena_ != nullptr && address >= arena_base_ && bytes <= arena_bytes_ &&
               address - arena_base_ <= arena_bytes_ - bytes;
    }

    [[nodiscard]] errc transfer(bool read, std::uint64_t address, std::byte* local,
                                std::size_t bytes) noexcept {
        while (bytes > 0) {
            iovec here{local, bytes};
            iovec there{reinterpret_cast<void*>(address), bytes};
            const ssize_t moved = read ? ::process_vm_readv(pid_, &here, 1, &there, 1, 0)
                                       : ::process_vm_writev(pid_, &here, 1, &there, 1, 0);
            if (moved <= 0) {
                // A registered region that is not mapped, or not writable, is the owner's mistake, not a lost right.
                if (errno == EFAULT || moved == 0) return errc::out_of_bounds;
                return errno == ESRCH ? errc::peer_lost : errc::unsupported;
            }
            local += moved;
            address += static_cast<std::uint64_t>(moved);
            bytes -= static_cast<std::size_t>(moved);
        }
        return errc::ok;
    }

    pid_t pid_ = -1;
    bool vm_allowed_ = false;
    void* table_ = nullptr;
    std::size_t table_bytes_ = 0;
    std::span<const region_entry> entries_{};
    std::byte* arena_ = nullptr;
    std::uint64_t arena_bytes_ = 0;
    std::uint64_t arena_base_ = 0;
};

}  // namespace rdmacoro::detail::shm
