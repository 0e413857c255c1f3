// The table of registered regions that remote accesses are checked against.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/memory/region.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <sys/random.h>

namespace rdmacoro::detail {

/// One registered region, or a free slot (key 0). May lie in memory that peers map read-only.
struct region_entry {
    std::atomic<std::uint64_t> key{0};
    std::atomic<std::uint64_t> address{0};
    std::atomic<std::uint64_t> length{0};
    std::atomic<access_rights> rights{access_rights::none};
    std::atomic<std::uint32_t> reserved{0};
};

/// Keys nobody can guess: 48 random bits above the slot's 16-bit index.
class key_source {
public:
    static constexpr unsigned slot_bits = 16;

    [[nodiscard]] std::uint64_t next(std::size_t slot) {
        if (used_ == pool_.size()) refill();
        std::uint64_t key = (pool_[used_++] << slot_bits) | slot;
        return (key >> slot_bits) != 0 ? key : next(slot);
    }
    [[nodiscard]] static std::size_t slot_of(std::uint64_t key) noexcept {
        return key & ((1u << slot_bits) - 1);
    }

private:
    void refill() {
        std::size_t got = 0;
        auto* bytes = reinterpret_cast<unsigned char*>(pool_.data());
        while (got < sizeof(pool_)) {
            const ssize_t now = ::getrandom(bytes + got, sizeof(pool_) - got, 0);
            if (now < 0) throw_error(errc::no_resources, "getrandom");
            got += static_cast<std::size_t>(now);
        }
        used_ = 0;
    }

    std::array<std::uint64_t, 32> pool_{};
    std::size_t used_ = pool_.size();
};

/// Whether an access of `length` bytes at `address` under `key` is allowed by `table`. Reads each field once, so that a
/// table in shared memory that changes meanwhile cannot be checked in one state and used in another: `ok` means that the
/// region was registered, long enough and open to `wanted` at some moment during the call.
[[nodiscard]] inline errc check_access(std::span<const region_entry> table, std::uint64_t key,
                                       std::uint64_t address, std::uint64_t length,
                                       access_rights wanted) noexcept {
    const std::size_t slot = key_source::slot_of(key);
    if (key == 0 || slot >= table.size()) return errc::bad_key;
    const region_entry& entry = table[slot];
    if (entry.key.load(std::memory_order_acquire) != key) return errc::bad_key;
    const std::uint64_t first = entry.address.load(std::memory_order_relaxed);
    const std::uint64_t bytes = entry.length.load(std::memory_order_relaxed);
    const access_rights rights = entry.rights.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.key.load(std::memory_order_relaxed) != key) return errc::bad_key;
    if (address < first || address - first > bytes || length > bytes - (address - first))
        return errc::out_of_bounds;
    if (!allows(rights, wanted)) return errc::access_denied;
    return errc::ok;
}

/// Gives out slots of a table that somebody else stores.
class region_table {
public:
    /// Gives `storage`, zeroed, its role; at most 65,536 entries are used.
    explicit region_table(std::span<region_entry> storage) : storage_(storage) {}

    /// Registers; throws `errc::no_resources` when the table is full.
    [[nodiscard]] remote_region add(std::span<std::byte> memory, access_rights rights) {
        std::size_t slot = 0;
        if (!free_.empty()) {
            slot = free_.back();
            free_.pop_back();
        } else if (fresh_ < storage_.size() && fresh_ < (std::size_t{1} << key_source::slot_bits)) {
            free_.reserve(fresh_ + 1);  // so that remove never allocates
            slot = fresh_++;
        } else {
            throw_error(errc::no_resources, "register_memory: the domain's table of regions is full");
        }
        const remote_region made{reinterpret_cast<std::uint64_t>(memory.data()), memory.size(),
                                 keys_.next(slot), rights};
        region_entry& entry = storage_[slot];
        entry.address.store(made.address, std::memory_order_relaxed);
        entry.length.store(made.length, std::memory_order_relaxed);
        entry.rights.store(rights, std::memory_order_relaxed);
        entry.key.store(made.key, std::memory_order_release);
        ++registered_;
        return made;
    }

    /// From now on the key is refused.
    void remove(std::uint64_t key) noexcept {
        region_entry& entry = storage_[key_source::slot_of(key)];
        entry.key.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        --registered_;
        free_.push_back(key_source::slot_of(key));
    }

    [[nodiscard]] errc check(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                             access_rights wanted) const noexcept {
        return check_access(storage_, key, address, length, wanted);
    }
    [[nodiscard]] std::size_t registered() const noexcept { return registered_; }

private:
    std::span<region_entry> storage_;
    std::size_t fresh_ = 0;
    std::size_t registered_ = 0;
    std::vector<std::size_t> free_;
    key_source keys_;
};

/// A registration of `owner`, which keeps `table`; empty when the table is full or memory is short.
[[nodiscard]] inline region try_register(region_owner& owner, region_table& table,
                                         std::span<std::byte> memory, access_rights rights) noexcept try {
    return region(owner, memory, table.add(memory, rights));
} catch (const std::exception&) {
    return {};
}

}  // namespace rdmacoro::detail
