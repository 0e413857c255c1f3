// The table of registered regions that remote accesses are checked against.
#pragma once

#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/memory/region.hpp>

#include <atomic>
#include <cstdint>
#include <span>

namespace rdmacoro::detail {

/// Random numbers that make a table's proofs differ from those of any other table with the same keys.
struct region_salt {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    /// Throws `errc::no_resources` when the system gives no random bits.
    [[nodiscard]] RDMACORO_DECL static region_salt random();
};

/// The entry of a table for a key, never 0: SipHash-2-4 of nothing under the key and the table's salt. It shows to all that read the
/// table whether they were told the right key, and the key itself to none: finding one takes some 2^47 tries, none of which can be made
/// before the table exists. The salt is no secret from those that read the table, as they must compute proofs themselves.
[[nodiscard]] RDMACORO_DECL std::uint64_t proof_of_key(std::uint64_t key, const region_salt& salt) noexcept;

/// SipHash-2-4 of the empty message under a key of 128 bits.
[[nodiscard]] RDMACORO_DECL std::uint64_t siphash_of_nothing(std::uint64_t low, std::uint64_t high) noexcept;

/// One registered region, or a free slot (proof 0). May lie in memory that peers map read-only: also peers that were not told
/// of the region.
struct region_entry {
    std::atomic<std::uint64_t> proof{0};  ///< see `proof_of_key`
    std::atomic<std::uint64_t> address{0};
    std::atomic<std::uint64_t> length{0};
    std::atomic<access_rights> rights{access_rights::none};
    std::atomic<std::uint32_t> reserved{0};
};

/// Unguessable keys: 48 random bits above the slot's 16-bit index.
class key_source {
public:
    static constexpr unsigned slot_bits = 16;

    /// Throws `errc::no_resources` when the system gives no random bits.
    [[nodiscard]] std::uint64_t next(std::size_t slot);
    [[nodiscard]] static std::size_t slot_of(std::uint64_t key) noexcept {
        return key & ((1u << slot_bits) - 1);
    }

private:
    void refill();

    static constexpr std::size_t keys = 32;
    std::uint64_t pool_[keys] = {};
    std::size_t used_ = keys;
};

/// Whether an access of `length` bytes at `address` under `key` is allowed by `table`. Reads each field once, so that a
/// table in shared memory that changes meanwhile cannot be checked in one state and used in another: `ok` means that the
/// region was registered, long enough and open to `wanted` at some moment during the call.
[[nodiscard]] RDMACORO_DECL errc check_access(std::span<const region_entry> table, const region_salt& salt,
                                              std::uint64_t key, std::uint64_t address, std::uint64_t length,
                                              access_rights wanted) noexcept;

/// Allocates slots of a table in memory that the caller owns.
class region_table {
public:
    /// `storage` is zeroed; at most 65,536 entries are used. A table that no peer can read needs no salt.
    explicit region_table(std::span<region_entry> storage, const region_salt& salt = {})
        : storage_(storage), salt_(salt) {}

    /// Registers; throws `errc::no_resources` when the table is full.
    [[nodiscard]] remote_region add(std::span<std::byte> memory, access_rights rights);

    /// Later accesses with the key are refused.
    void remove(std::uint64_t key) noexcept;

    [[nodiscard]] errc check(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                             access_rights wanted) const noexcept {
        return check_access(storage_, salt_, key, address, length, wanted);
    }
    /// The memory registered with this key; empty when there is none.
    [[nodiscard]] std::span<std::byte> memory_of(std::uint64_t key) const noexcept;
    [[nodiscard]] std::size_t registered() const noexcept { return registered_; }
    [[nodiscard]] const region_salt& salt() const noexcept { return salt_; }

private:
    std::span<region_entry> storage_;
    region_salt salt_;
    std::size_t fresh_ = 0;
    std::size_t registered_ = 0;
    plain_vector<std::uint32_t> free_;  // slots
    key_source keys_;
};

/// A registration of `owner`, which holds `table`; empty when the table is full or memory is short.
[[nodiscard]] RDMACORO_DECL region try_register(region_owner& owner, region_table& table,
                                                std::span<std::byte> memory, access_rights rights) noexcept;

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/memory/impl/region_table.ipp>
#endif
