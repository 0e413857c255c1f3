// A peer's memory as this process can reach it: through the kernel, or directly in the peer's shared arena.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/shm/notice_board.hpp>
#include <rdmacoro/transport/shm/peer_process.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmacoro::detail::shm {

/// The part of a peer's memory that is mapped here, and the way to reach the rest.
class peer_memory {
public:
    peer_memory() noexcept = default;
    peer_memory(const peer_memory&) = delete;
    peer_memory& operator=(const peer_memory&) = delete;
    ~peer_memory();

    /// Maps the peer's table of regions, read-only. Throws.
    void map_table(int fd, std::uint64_t entries, const region_salt& salt);

    /// Takes the peer's arena, which it has at `peer_base`, to be mapped when it is first used, if it is of a size that leaves room for those of other peers; an
    /// arena that is not mapped is reached like the rest of the peer's memory. Throws when there can be no such arena.
    void map_arena(int fd, std::uint64_t peer_base, std::uint64_t bytes);

    /// From here on the peer's whole memory is reached through the kernel, if the kernel permits it.
    void reach_through(peer_process process) noexcept;
    void forbid_process_vm() noexcept { vm_allowed_ = false; }

    /// Whether everything registered can be reached without the peer's help.
    [[nodiscard]] bool vm_allowed() const noexcept { return vm_allowed_; }

    /// Whether this range can be reached without the peer's help.
    [[nodiscard]] bool reaches(std::uint64_t address, std::uint64_t bytes) const noexcept {
        return vm_allowed_ || in_arena(address, bytes);
    }

    /// Bytes of the peer's arena that are mapped here, or will be when they are used for the first time.
    [[nodiscard]] std::uint64_t arena_mapped() const noexcept { return arena_bytes_; }

    /// Address space that one peer's arena may take, and those of all peers of this process, of the 2^47 bytes there are.
    static constexpr std::uint64_t most_arena = std::uint64_t{1} << 40;
    static constexpr std::uint64_t most_arenas = std::uint64_t{1} << 45;
    /// Where the peer wants to be notified of news, and of touches; nullptr before `map_arena`.
    [[nodiscard]] notice_board* board() const noexcept {
        return boards_ == nullptr ? nullptr : &boards_->news;
    }
    [[nodiscard]] notice_board* touch_board() const noexcept {
        return boards_ == nullptr ? nullptr : &boards_->touches;
    }
    /// Whether the peer's doorbell must be rung after a mark on its board. The word lies behind its table.
    [[nodiscard]] bool asleep() const noexcept {
        return asleep_ != nullptr && asleep_->load(std::memory_order_relaxed) != 0;
    }

    [[nodiscard]] errc check(const remote_region& there, access_rights wanted) const noexcept {
        return check_access(entries_, salt_, there.key, there.address, there.length, wanted);
    }

    /// Copies; the range has been checked. `errc::unsupported` when the kernel no longer lets us, or there is no room for the arena and
    /// the rest of the peer's memory is out of reach; `errc::peer_lost` when the process has ended.
    [[nodiscard]] errc copy(bool read, std::uint64_t address, std::byte* local, std::size_t bytes) noexcept;

    /// The pages that are mapped here are about to be used.
    void use_pages() noexcept { uses_pages_ = used_lately_ = true; }
    [[nodiscard]] bool uses_pages() const noexcept { return uses_pages_; }
    /// Whether it was used since the last call.
    [[nodiscard]] bool used_lately() noexcept { return std::exchange(used_lately_, false); }
    /// The peer's pages that were used here are no longer mapped one by one: thousands of links would count them again and again.
    void release_pages() noexcept;

private:
    [[nodiscard]] static bool reserve_arena(std::uint64_t bytes) noexcept;

    inline static std::atomic<std::uint64_t> arenas_mapped{0};  // bytes
    /// Maps the arena, once; false where there is no room for it.
    [[nodiscard]] bool open_arena() noexcept;
    [[nodiscard]] bool in_arena(std::uint64_t address, std::uint64_t bytes) const noexcept {
        return arena_bytes_ != 0 && address >= arena_base_ && bytes <= arena_bytes_ &&
               address - arena_base_ <= arena_bytes_ - bytes;
    }

    peer_process process_;
    bool vm_allowed_ = false;
    bool uses_pages_ = false;
    bool used_lately_ = false;
    void* table_ = nullptr;
    std::size_t table_bytes_ = 0;
    std::span<const region_entry> entries_{};
    region_salt salt_;
    const std::atomic<std::uint32_t>* asleep_ = nullptr;
    notice_boards* boards_ = nullptr;
    std::byte* arena_ = nullptr;  // when it was used for the first time
    std::uint64_t arena_bytes_ = 0;
    std::uint64_t arena_base_ = 0;
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/peer_memory.ipp>
#endif
