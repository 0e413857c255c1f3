// Bodies of memory.hpp.
#pragma once

#include <rdmacoro/transport/ofi/memory.hpp>

#include <cerrno>
#include <utility>

namespace rdmacoro::detail::fabric {

RDMACORO_DECL int memory_access::add(std::span<std::byte> memory, std::uint64_t access,
                                     unique_registration& made) noexcept {
    const bool own_keys = !device_.asks(FI_MR_PROV_KEY);
    constexpr int tries = 8;  // of keys that may be in use already
    for (int n = 0; n < tries; ++n) {
        std::uint64_t key = 0;
        try {
            if (own_keys) key = (keys_.next(0) >> key_source::slot_bits) & key_mask_;  // random bits only
        } catch (const std::exception&) {
            return -FI_ENOMEM;
        }
        fid_mr* registration = nullptr;
        const int failed = ::fi_mr_reg(device_.domain(), memory.data(), memory.size(), access, 0, key, 0,
                                       &registration, nullptr);
        if (own_keys && (failed == -FI_ENOKEY || failed == -EEXIST)) continue;
        if (failed != 0) return failed;
        made.reset(registration);
        if (device_.asks(FI_MR_ENDPOINT)) {
            int bound = ::fi_mr_bind(registration, &device_.endpoint()->fid, 0);
            if (bound == 0) bound = ::fi_mr_enable(registration);
            if (bound != 0) {
                made.reset();
                return bound;
            }
        }
        if (::fi_mr_key(registration) == FI_KEY_NOTAVAIL) {
            made.reset();
            return -FI_ENOKEY;
        }
        return 0;
    }
    return -FI_ENOKEY;
}

RDMACORO_DECL std::optional<page_registrar::handle>
page_registrar::register_memory(std::span<std::byte> pages, access_rights rights) noexcept {
    handle made;
    made.base = pages.data();
    const std::uint64_t remote = memory_access::remote_access(rights);
    made.writable =
        memory_.add(pages, FI_SEND | FI_RECV | FI_READ | FI_WRITE | remote, made.registration) == 0;
    // Memory that is not writable can still be sent from.
    if (!made.writable && !allows(rights, access_rights::remote_write))
        static_cast<void>(memory_.add(pages, FI_SEND | FI_WRITE | remote, made.registration));
    if (made.registration == nullptr) return std::nullopt;
    return made;
}

RDMACORO_DECL region region_list::add(region_owner& owner, std::span<std::byte> memory,
                                      access_rights rights) {
    if (served_) return region(owner, memory, table_.add(memory, rights));
    reserve_one();
    const std::uint64_t alignment = memory_.of().profile().get_alignment;
    // Providers refuse to register nothing.
    const std::span<std::byte> asked = memory.empty() ? std::span<std::byte>(nothing_) : memory;
    const auto first = reinterpret_cast<std::uintptr_t>(asked.data()) & ~(alignment - 1);
    const auto end =
        (reinterpret_cast<std::uintptr_t>(asked.data() + asked.size()) + alignment - 1) & ~(alignment - 1);
    const std::span<std::byte> real(reinterpret_cast<std::byte*>(first), end - first);
    entry made;
    const int failed = memory_.add(real, FI_SEND | memory_access::remote_access(rights), made.exact);
    if (failed != 0) throw_registration_failure(memory_.of().name(), memory.size(), failed);
    const std::uint64_t key = ::fi_mr_key(made.exact.get());
    return region(
        owner, memory,
        enter(std::move(made), memory_.address(real.data(), asked.data()), memory.size(), key, rights));
}

RDMACORO_DECL region region_list::add(region_owner& owner, page_cache& cache, std::span<std::byte> memory,
                                      access_rights rights) noexcept {
    if (served_) return try_register(owner, table_, memory, rights);
    entry made;
    made.cached = cache.acquire(memory, rights);
    if (!made.cached) return {};
    try {
        reserve_one();
    } catch (const std::exception&) {
        return {};
    }
    const page_registrar::handle& pages = made.cached.registration();
    const std::uint64_t key = ::fi_mr_key(pages.registration.get());
    const std::uint64_t address = memory_.address(pages.base, memory.data());
    return region(owner, memory, enter(std::move(made), address, memory.size(), key, rights));
}

RDMACORO_DECL void region_list::remove(std::uint64_t key) noexcept {
    if (served_) return table_.remove(key);
    // A key may be in use more than once: the cache returns one registration for several regions.
    for (std::size_t bucket = key % buckets_.size(), at = buckets_[bucket], before = none; at != none;
         before = at, at = open_[at].next) {
        if (open_[at].key != key) continue;
        (before == none ? buckets_[bucket] : open_[before].next) = open_[at].next;
        open_[at].exact.reset();
        open_[at].cached.reset();
        open_[at].next = free_;
        free_ = static_cast<std::uint32_t>(at);
        --count_;
        return;
    }
}

RDMACORO_DECL void region_list::cut_off() noexcept {
    for (entry& one : open_) {
        one.exact.reset();
        one.cached.reset();
    }
}

RDMACORO_DECL void region_list::reserve_one() {
    if (free_ != none) return;
    if (open_.size() == most)
        throw error(errc::no_resources, "ofi: 65,536 regions are registered in one domain");
    open_.emplace_back();
    free_ = static_cast<std::uint32_t>(open_.size() - 1);
}

RDMACORO_DECL remote_region region_list::enter(entry&& made, std::uint64_t address, std::uint64_t length,
                                               std::uint64_t key, access_rights rights) noexcept {
    const std::uint32_t at = free_;
    free_ = open_[at].next;
    open_[at] = std::move(made);
    open_[at].key = key;
    std::uint32_t& first = buckets_[key % buckets_.size()];
    open_[at].next = std::exchange(first, at);
    ++count_;
    return {address, length, key, rights};
}

}  // namespace rdmacoro::detail::fabric
