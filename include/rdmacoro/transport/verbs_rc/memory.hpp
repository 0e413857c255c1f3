// Users' memory: registered for peers, and for the device's own reading and writing.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/registration_cache.hpp>
#include <rdmacoro/transport/verbs_rc/device.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sys/random.h>

namespace rdmacoro::detail::verbs {

/// Registers pages with a device: a model of `registrar`.
class page_registrar {
public:
    struct handle {
        unique_registration registration;
        bool writable = false;  // by this host's device: a get may write to it

        [[nodiscard]] remote_region remote() const noexcept {
            return {reinterpret_cast<std::uintptr_t>(registration->addr), registration->length,
                    registration->rkey};
        }
    };

    explicit page_registrar(device& of) noexcept : device_(of) {}

    [[nodiscard]] std::optional<handle> register_memory(std::span<std::byte> pages,
                                                        access_rights rights) noexcept;
    void deregister(handle& h) noexcept { h.registration.reset(); }

private:
    device& device_;
};

using page_cache = registration_cache<page_registrar>;

/// The regions that peers may reach. A region's key is the device's remote key in its low half; the high half identifies the
/// region among all regions that there ever were, for this side alone: the device does not check it. A peer that guesses a
/// device's key of 32 bits, over any link of the same domain, reaches the memory; give a link to an untrusted peer a domain of
/// its own.
class region_list {
public:
    explicit region_list(device& of) noexcept;

    /// Registers exactly this memory. Throws `errc::no_resources` or `errc::invalid_argument`.
    [[nodiscard]] remote_region add(std::span<std::byte> memory, access_rights rights);

    /// Opens memory that the cache has registered, until the region ends. Empty: there is no room.
    [[nodiscard]] std::optional<remote_region> add(page_cache::lease&& lease, access_rights rights) noexcept;

    void remove(std::uint64_t key) noexcept;

    [[nodiscard]] std::size_t registered() const noexcept { return count_; }

private:
    static constexpr std::size_t most = 1u << 16;

    struct entry {
        unique_registration exact;
        page_cache::lease cached;
    };

    void reserve_one();

    remote_region enter(entry&& made, std::span<std::byte> memory, access_rights rights,
                        std::uint32_t rkey) noexcept;

    device& device_;
    std::uint64_t salt_ = 0;
    std::vector<entry> entries_;
    std::vector<std::uint32_t> free_;
    std::size_t count_ = 0;
    std::byte nothing_{};
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/memory.ipp>
#endif
