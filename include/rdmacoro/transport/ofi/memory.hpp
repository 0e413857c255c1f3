// Users' memory: registered for peers, and for the provider's own reading and writing.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/memory/registration_cache.hpp>
#include <rdmacoro/transport/ofi/device.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rdmacoro::detail::fabric {

/// Registers memory as the provider requires: with keys chosen by the provider or by this side, by address or by
/// offset, bound to the endpoint or not.
class memory_access {
public:
    explicit memory_access(device& of) noexcept
        : device_(of),
          key_mask_(of.info().domain_attr->mr_key_size >= 8
                        ? ~std::uint64_t{0}
                        : (std::uint64_t{1} << (8 * of.info().domain_attr->mr_key_size)) - 1) {}

    [[nodiscard]] device& of() const noexcept { return device_; }
    /// Whether local memory of sends, receives, gets and puts needs a registration.
    [[nodiscard]] bool needs_local() const noexcept { return device_.asks(FI_MR_LOCAL); }
    /// The address by which peers reach the byte `at` of memory that is registered from `base` on.
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
                          unique_registration& made) noexcept;

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
        bool writable = false;  // by this side: a get may write to it
    };

    explicit page_registrar(memory_access& with) noexcept : memory_(with) {}

    [[nodiscard]] std::optional<handle> register_memory(std::span<std::byte> pages,
                                                        access_rights rights) noexcept;
    void deregister(handle& h) noexcept { h.registration.reset(); }

private:
    memory_access& memory_;
};

using page_cache = registration_cache<page_registrar>;

/// The regions that peers may reach.
///
/// Where peers read and write directly, a region's key is the provider's; where that has no more than 32 bits, a peer that guesses
/// it reaches the memory: give a link to an untrusted peer a domain of its own. Where this side serves them, the key is one of the
/// region table, and the region is not registered with the provider.
class region_list {
public:
    region_list(memory_access& with, bool served)
        : memory_(with), served_(served), entries_(served ? most : 0), table_(entries_) {}

    /// Registers exactly this memory; with neighbours, where the provider's gets need alignment. Throws `errc::no_resources`
    /// or `errc::invalid_argument`.
    [[nodiscard]] region add(region_owner& owner, std::span<std::byte> memory, access_rights rights);

    /// Opens memory that the cache has registered, until the region ends. Empty: there is no room.
    [[nodiscard]] region add(region_owner& owner, page_cache& cache, std::span<std::byte> memory,
                             access_rights rights) noexcept;

    void remove(std::uint64_t key) noexcept;

    [[nodiscard]] errc check(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                             access_rights wanted) const noexcept {
        return table_.check(key, address, length, wanted);
    }
    [[nodiscard]] std::size_t registered() const noexcept { return served_ ? table_.registered() : count_; }
    /// Ends all registrations, because the endpoint that they are bound to is about to be closed: peers reach no region any more.
    void cut_off() noexcept;

private:
    static constexpr std::size_t most = 1u << 16;
    static constexpr std::uint32_t none = 0xffffffff;

    struct entry {
        unique_registration exact;
        page_cache::lease cached;
        std::uint64_t key = 0;
        std::uint32_t next = none;  // of its bucket, or free
    };

    void reserve_one();

    remote_region enter(entry&& made, std::uint64_t address, std::uint64_t length, std::uint64_t key,
                        access_rights rights) noexcept;

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

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/memory.ipp>
#endif
