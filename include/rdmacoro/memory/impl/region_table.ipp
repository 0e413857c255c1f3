// Keys, and the table of registered regions.
#pragma once

#include <rdmacoro/memory/region_table.hpp>

#include <bit>
#include <exception>
#include <new>

#include <sys/random.h>

namespace rdmacoro::detail {

RDMACORO_COLD std::uint64_t key_source::next(std::size_t slot) {
    for (;;) {
        if (used_ == keys) refill();
        const std::uint64_t random = pool_[used_++] << slot_bits;
        if (random != 0) return random | slot;
    }
}

/// Fills memory with random bits. Throws.
RDMACORO_COLD void fill_with_random(void* memory, std::size_t bytes) {
    auto* const to = static_cast<unsigned char*>(memory);
    for (std::size_t got = 0; got < bytes;) {
        const ssize_t now = ::getrandom(to + got, bytes - got, 0);
        if (now < 0) throw_error(errc::no_resources, "getrandom");
        got += static_cast<std::size_t>(now);
    }
}

RDMACORO_COLD void key_source::refill() {
    fill_with_random(pool_, sizeof pool_);
    used_ = 0;
}

RDMACORO_COLD region_salt region_salt::random() {
    region_salt made;
    fill_with_random(&made, sizeof made);
    return made;
}

RDMACORO_COLD std::uint64_t siphash_of_nothing(std::uint64_t low, std::uint64_t high) noexcept {
    std::uint64_t v0 = low ^ 0x736f6d6570736575;
    std::uint64_t v1 = high ^ 0x646f72616e646f6d;
    std::uint64_t v2 = low ^ 0x6c7967656e657261;
    std::uint64_t v3 = high ^ 0x7465646279746573;
    for (int round = 0; round < 6; ++round) {
        if (round == 2) v2 ^= 0xff;  // after the block of the length, 0
        v0 += v1;
        v1 = std::rotl(v1, 13) ^ v0;
        v0 = std::rotl(v0, 32);
        v2 += v3;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 += v3;
        v3 = std::rotl(v3, 21) ^ v0;
        v2 += v1;
        v1 = std::rotl(v1, 17) ^ v2;
        v2 = std::rotl(v2, 32);
    }
    return v0 ^ v1 ^ v2 ^ v3;
}

RDMACORO_COLD std::uint64_t proof_of_key(std::uint64_t key, const region_salt& salt) noexcept {
    return siphash_of_nothing(key ^ salt.low, ~key ^ salt.high) | 1;
}

RDMACORO_COLD errc check_access(std::span<const region_entry> table, const region_salt& salt,
                                std::uint64_t key, std::uint64_t address, std::uint64_t length,
                                access_rights wanted) noexcept {
    const std::size_t slot = key_source::slot_of(key);
    if (key == 0 || slot >= table.size()) return errc::bad_key;
    const region_entry& entry = table.data()[slot];
    const std::uint64_t proof = proof_of_key(key, salt);
    if (entry.proof.load(std::memory_order_acquire) != proof) return errc::bad_key;
    const std::uint64_t first = entry.address.load(std::memory_order_relaxed);
    const std::uint64_t bytes = entry.length.load(std::memory_order_relaxed);
    const access_rights rights = entry.rights.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.proof.load(std::memory_order_relaxed) != proof) return errc::bad_key;
    if (address < first || address - first > bytes || length > bytes - (address - first))
        return errc::out_of_bounds;
    if (!allows(rights, wanted)) return errc::access_denied;
    return errc::ok;
}

RDMACORO_COLD remote_region region_table::add(std::span<std::byte> memory, access_rights rights) {
    const bool reused = !free_.empty();
    if (!reused && (fresh_ >= storage_.size() || fresh_ >= (std::size_t{1} << key_source::slot_bits)))
        throw_error(errc::no_resources, "register_memory: the domain's table of regions is full");
    if (!reused && !free_.try_reserve(fresh_ + 1)) throw std::bad_alloc();  // so that remove never allocates
    const std::size_t slot = reused ? free_.back() : fresh_;
    const remote_region made{reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), keys_.next(slot),
                             rights};
    if (reused) {
        free_.pop_back();
    } else {
        ++fresh_;
    }
    region_entry& entry = storage_.data()[slot];
    entry.address.store(made.address, std::memory_order_relaxed);
    entry.length.store(made.length, std::memory_order_relaxed);
    entry.rights.store(rights, std::memory_order_relaxed);
    entry.proof.store(proof_of_key(made.key, salt_), std::memory_order_release);
    ++registered_;
    return made;
}

RDMACORO_COLD void region_table::remove(std::uint64_t key) noexcept {
    const std::size_t slot = key_source::slot_of(key);
    storage_.data()[slot].proof.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    --registered_;
    static_cast<void>(free_.try_push_back(static_cast<std::uint32_t>(slot)));
}

RDMACORO_COLD std::span<std::byte> region_table::memory_of(std::uint64_t key) const noexcept {
    if (check(key, 0, 0, access_rights::none) == errc::bad_key) return {};
    const region_entry& entry = storage_.data()[key_source::slot_of(key)];
    return {reinterpret_cast<std::byte*>(entry.address.load(std::memory_order_relaxed)),
            static_cast<std::size_t>(entry.length.load(std::memory_order_relaxed))};
}

RDMACORO_COLD region try_register(region_owner& owner, region_table& table, std::span<std::byte> memory,
                                  access_rights rights) noexcept {
    try {
        return region(owner, memory, table.add(memory, rights));
    } catch (const std::exception&) {
        return {};
    }
}

}  // namespace rdmacoro::detail
