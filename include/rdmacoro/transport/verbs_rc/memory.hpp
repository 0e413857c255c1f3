// Users' memory: registered for peers, and for the device's own reading and writing.
#pragma once

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
        bool writable = false;  // by this host's device: it may be got into

        [[nodiscard]] remote_region remote() const noexcept {
            return {reinterpret_cast<std::uintptr_t>(registration->addr), registration->length,
                    registration->rkey};
        }
    };

    explicit page_registrar(device& of) noexcept : device_(of) {}

    [[nodiscard]] std::optional<handle> register_memory(std::span<std::byte> pages,
                                                        access_rights rights) noexcept {
        const int flags = device_.access_flags(rights);
        handle made;
        made.registration.reset((::ibv_reg_mr)(device_.domain(), pages.data(), pages.size(), flags));
        made.writable = made.registration != nullptr;
        // What cannot be written can still be sent from.
        if (made.registration == nullptr && !allows(rights, access_rights::remote_write))
            made.registration.reset(
                (::ibv_reg_mr)(device_.domain(), pages.data(), pages.size(),
                               flags & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)));
        if (made.registration == nullptr) return std::nullopt;
        return made;
    }
    void deregister(handle& h) noexcept { h.registration.reset(); }

private:
    device& device_;
};

using page_cache = registration_cache<page_registrar>;

/// The regions that peers may reach. A region's key is the device's remote key in its low half; the high half names the
/// region among all that there ever were, for this side alone: the device does not check it. Who guesses a device's key of
/// 32 bits, and whose link is in the same domain, reaches the memory; a link whose peer is not trusted deserves a domain
/// of its own.
class region_list {
public:
    explicit region_list(device& of) noexcept : device_(of) {
        if (::getrandom(&salt_, sizeof salt_, 0) != sizeof salt_)
            salt_ = reinterpret_cast<std::uintptr_t>(this);
    }

    /// Registers exactly this memory. Throws `errc::no_resources` or `errc::invalid_argument`.
    [[nodiscard]] remote_region add(std::span<std::byte> memory, access_rights rights) {
        reserve_one();
        entry made;
        // Devices refuse to register nothing.
        const std::span<std::byte> real = memory.empty() ? std::span<std::byte>(&nothing_, 1) : memory;
        int flags = device_.access_flags(rights);
        made.exact.reset((::ibv_reg_mr)(device_.domain(), real.data(), real.size(), flags));
        if (made.exact == nullptr && errno == EFAULT && !allows(rights, access_rights::remote_write)) {
            flags &= ~IBV_ACCESS_LOCAL_WRITE;
            made.exact.reset((::ibv_reg_mr)(device_.domain(), real.data(), real.size(), flags));
        }
        if (made.exact == nullptr) throw_registration_failure(real.size(), errno);
        const std::uint32_t rkey = made.exact->rkey;
        return enter(std::move(made), memory, rights, rkey);
    }

    /// Opens memory that the cache has registered, until the region goes. Empty: there is no room.
    [[nodiscard]] std::optional<remote_region> add(page_cache::lease&& lease, access_rights rights) noexcept {
        try {
            reserve_one();
        } catch (const std::exception&) {
            return std::nullopt;
        }
        const std::uint32_t rkey = lease.registration().registration->rkey;
        const std::span<std::byte> memory = lease.memory();
        entry made;
        made.cached = std::move(lease);
        return enter(std::move(made), memory, rights, rkey);
    }

    void remove(std::uint64_t key) noexcept {
        const std::size_t at = (key >> 32) % most;
        entries_[at].exact.reset();
        entries_[at].cached.reset();
        free_.push_back(static_cast<std::uint32_t>(at));
        --count_;
    }

    [[nodiscard]] std::size_t registered() const noexcept { return count_; }

private:
    static constexpr std::size_t most = 1u << 16;

    struct entry {
        unique_registration exact;
        page_cache::lease cached;
    };

    void reserve_one() {
        if (!free_.empty()) return;
        if (entries_.size() == most)
            throw error(errc::no_resources, "verbs: 65,536 regions are registered in one domain");
        free_.reserve(entries_.size() + 1);
        entries_.emplace_back();
        free_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
    }

    remote_region enter(entry&& made, std::span<std::byte> memory, access_rights rights,
                        std::uint32_t rkey) noexcept {
        const std::uint32_t at = free_.back();
        free_.pop_back();
        entries_[at] = std::move(made);
        ++count_;
        salt_ = salt_ * 6364136223846793005u + 1442695040888963407u;
        const std::uint64_t high = ((salt_ >> 48) << 16) | at;
        return {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size(), (high << 32) | rkey, rights};
    }

    device& device_;
    std::uint64_t salt_ = 0;
    std::vector<entry> entries_;
    std::vector<std::uint32_t> free_;
    std::size_t count_ = 0;
    std::byte nothing_{};
};

}  // namespace rdmacoro::detail::verbs
