// Users' memory: registered for peers, and for the provider's own reading and writing.
#pragma once

#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/memory/registration_cache.hpp>
#include <rdmacoro/transport/ofi/device.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rdmacoro::detail::fabric {

/// Registers memory as the provider wants it: with keys of its own or of ours, by address or by offset, bound to the endpoint
/// or not.
class memory_access {
public:
    explicit memory_access(device& of) noexcept
        : device_(of),
          key_mask_(of.info().domain_attr->mr_key_size >= 8
                        ? ~std::uint64_t{0}
                        : (std::uint64_t{1} << (8 * of.info().domain_attr->mr_key_size)) - 1) {}

    [[nodiscard]] device& of() const noexcept { return device_; }
    /// Memory that is sent from, received into, got into or put from needs a registration.
    [[nodiscard]] bool needs_local() const noexcept { return device_.asks(FI_MR_LOCAL); }
    /// How peers name the byte `at` of memory that is registered from `base` on.
    [[nodiscard]] std::uint64_t address(const void* base, const void* at) const noexcept {
        const auto first = reinterpret_cast<std::uintptr_t>(base);
        const auto wanted = reinterpret_cast<std::uintptr_t>(at);
        return device_.asks(FI_MR_VIRT_ADDR) ? wanted : wanted - first;
    }
    [[nodiscard]] static std::uint64_t remote_access(access_rights rights) noexcept {
        return (allows(rights, access_rights::remote_read) ? FI_REMOTE_READ : 0) |
               (allows(rights, access_rights::remote_write) ? FI_REMOTE_WRITE : 0);
    }

    /// 0, or libfabric's negative number.
    [[nodiscard]] int add(std::span<std::byte> memory, std::uint64_t access,
                          unique_registration& made) noexcept {
        const bool own_keys = !device_.asks(FI_MR_PROV_KEY);
        constexpr int tries = 8;  // of keys that somebody may have already
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

private:
    device& device_;
    std::uint64_t key_mask_;
    key_source keys_;
};

/// Registers pages with a provider: a model of `registrar`.
class page_registrar {
public:
    struct handle {
        unique_registration registration;
        std::byte* base = nullptr;
        bool writable = false;  // by this side: it may be got into
    };

    explicit page_registrar(memory_access& with) noexcept : memory_(with) {}

    [[nodiscard]] std::optional<handle> register_memory(std::span<std::byte> pages,
                                                        access_rights rights) noexcept {
        handle made;
        made.base = pages.data();
        const std::uint64_t remote = memory_access::remote_access(rights);
        made.writable =
            memory_.add(pages, FI_SEND | FI_RECV | FI_READ | FI_WRITE | remote, made.registration) == 0;
        // What cannot be written can still be sent from.
        if (!made.writable && !allows(rights, access_rights::remote_write))
            static_cast<void>(memory_.add(pages, FI_SEND | FI_WRITE | remote, made.registration));
        if (made.registration == nullptr) return std::nullopt;
        return made;
    }
    void deregister(handle& h) noexcept { h.registration.reset(); }

private:
    memory_access& memory_;
};

using page_cache = registration_cache<page_registrar>;

/// The regions that peers may reach.
///
/// Where peers read and write by themselves, a region's key is the provider's; where that has no more than 32 bits, who
/// guesses it reaches the memory: a link whose peer is not trusted deserves a domain of its own. Where this side serves them,
/// the key is one of `table()`, and the provider never learns of the region.
class region_list {
public:
    region_list(memory_access& with, bool served)
        : memory_(with), served_(served), entries_(served ? most : 0), table_(entries_) {}

    /// Registers exactly this memory; with neighbours, where the provider's gets need alignment. Throws `errc::no_resources`
    /// or `errc::invalid_argument`.
    [[nodiscard]] region add(region_owner& owner, std::span<std::byte> memory, access_rights rights) {
        if (served_) return region(owner, memory, table_.add(memory, rights));
        reserve_one();
        const std::uint64_t alignment = memory_.of().profile().get_alignment;
        // Providers refuse to register nothing.
        const std::span<std::byte> asked = memory.empty() ? std::span<std::byte>(nothing_) : memory;
        const auto first = reinterpret_cast<std::uintptr_t>(asked.data()) & ~(alignment - 1);
        const auto end = (reinterpret_cast<std::uintptr_t>(asked.data() + asked.size()) + alignment - 1) &
                         ~(alignment - 1);
        const std::span<std::byte> real(reinterpret_cast<std::byte*>(first), end - first);
        entry made;
        const int failed = memory_.add(real, FI_SEND | memory_access::remote_access(rights), made.exact);
        if (failed != 0) throw_registration_failure(memory_.of().name(), memory.size(), failed);
        const std::uint64_t key = ::fi_mr_key(made.exact.get());
        return region(
            owner, memory,
            enter(std::move(made), memory_.address(real.data(), asked.data()), memory.size(), key, rights));
    }

    /// Opens memory that the cache has registered, until the region goes. Empty: there is no room.
    [[nodiscard]] region add(region_owner& owner, page_cache& cache, std::span<std::byte> memory,
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

    void remove(std::uint64_t key) noexcept {
        if (served_) return table_.remove(key);
        // A key may be in use more than once: the cache gives out what it has.
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

    [[nodiscard]] errc check(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                             access_rights wanted) const noexcept {
        return table_.check(key, address, length, wanted);
    }
    [[nodiscard]] std::size_t registered() const noexcept { return served_ ? table_.registered() : count_; }
    /// The endpoint that they are bound to is about to go: peers reach none of them any more.
    void cut_off() noexcept {
        for (entry& one : open_) {
            one.exact.reset();
            one.cached.reset();
        }
    }

private:
    static constexpr std::size_t most = 1u << 16;
    static constexpr std::uint32_t none = 0xffffffff;

    struct entry {
        unique_registration exact;
        page_cache::lease cached;
        std::uint64_t key = 0;
        std::uint32_t next = none;  // of its bucket, or free
    };

    void reserve_one() {
        if (free_ != none) return;
        if (open_.size() == most)
            throw error(errc::no_resources, "ofi: 65,536 regions are registered in one domain");
        open_.emplace_back();
        free_ = static_cast<std::uint32_t>(open_.size() - 1);
    }

    remote_region enter(entry&& made, std::uint64_t address, std::uint64_t length, std::uint64_t key,
                        access_rights rights) noexcept {
        const std::uint32_t at = free_;
        free_ = open_[at].next;
        open_[at] = std::move(made);
        open_[at].key = key;
        std::uint32_t& first = buckets_[key % buckets_.size()];
        open_[at].next = std::exchange(first, at);
        ++count_;
        return {address, length, key, rights};
    }

    memory_access& memory_;
    const bool served_;
    std::vector<region_entry> entries_;
    region_table table_;
    std::vector<entry> open_;
    std::vector<std::uint32_t> buckets_ = std::vector<std::uint32_t>(4096, none);
    std::uint32_t free_ = none;
    std::size_t count_ = 0;
    alignas(8) std::array<std::byte, 8> nothing_{};
};

}  // namespace rdmacoro::detail::fabric
