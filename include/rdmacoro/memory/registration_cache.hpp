// registration_cache: leaves memory registered after its use, for transports with expensive registration.
#pragma once

#include <rdmacoro/coro/detail/maybe.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/memory/detail/range_index.hpp>
#include <rdmacoro/memory/detail/unmap_watch.hpp>
#include <rdmacoro/memory/region.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <sys/types.h>

namespace rdmacoro {

/// Registers memory with a device; a transport's. Semantic requirements:
///  1. `register_memory(pages, rights)`: whole pages. Empty when that is not possible now; the cache then drops unused
///     registrations, and calls it again.
///  2. `deregister(handle)` is called once for each registration, when it has no lease any more. The memory may have been
///     unmapped by then, or be mapped anew.
///  3. Neither calls the cache.
///  4. Where `handle.remote()` exists it describes the registered pages, and `lease::remote()` the requested part.
template <class R>
concept registrar =
    requires(R& r, std::span<std::byte> pages, access_rights rights, typename R::handle& handle) {
        requires std::is_nothrow_move_constructible_v<typename R::handle>;
        { r.register_memory(pages, rights) } noexcept -> std::same_as<std::optional<typename R::handle>>;
        { r.deregister(handle) } noexcept;
    };

/// Limits of a registration cache.
struct registration_cache_options {
    std::size_t max_entries = 1024;                ///< cached registrations; ones for one use are not counted
    std::size_t max_bytes = std::size_t{1} << 30;  ///< of cached registrations, in bytes of whole pages
    unsigned bypass_after = 64;                    ///< misses in a row while full; 0: never push another out
    bool others_unmap =
        true;  ///< false: only the cache's own thread ever maps and unmaps memory; saves a system call a hit
};

/// Counts of a registration cache since it was made; all but the last two only grow.
struct registration_cache_statistics {
    std::uint64_t hits = 0;            ///< leases of memory that was registered already
    std::uint64_t misses = 0;          ///< leases that registered
    std::uint64_t evictions = 0;       ///< dropped to make room
    std::uint64_t invalidated = 0;     ///< dropped because the memory was unmapped, moved or discarded
    std::uint64_t bypassed = 0;        ///< registered for one use only, for any reason
    std::uint64_t unwatchable = 0;     ///< of these, because the memory cannot be watched
    std::size_t entries = 0;           ///< cached now
    std::size_t registered_bytes = 0;  ///< registered now, cached or for one use
};

namespace detail {

/// A registration, without the device's handle.
struct registration_entry {
    address_range pages;
    access_rights rights = access_rights::none;
    bool kept = false;  // in the index, and watched
    pid_t process = 0;  // the process that registered it; only it can deregister
    std::size_t users = 0;
    registration_entry* previous = nullptr;  // in the list of unused ones
    registration_entry* next = nullptr;      // in the list of unused or of spare ones
};

/// The part of a registration cache that does not depend on the device.
class registration_index {
public:
    registration_index(const registration_index&) = delete;
    registration_index& operator=(const registration_index&) = delete;

    void clear() noexcept;
    [[nodiscard]] bool holds(std::span<std::byte> memory, access_rights rights) noexcept;
    /// Its counts since it was made.
    [[nodiscard]] registration_cache_statistics statistics() const noexcept;
    [[nodiscard]] bool keeps() const noexcept { return watch_ != nullptr; }
    /// The options it was made with.
    [[nodiscard]] const registration_cache_options& options() const noexcept { return options_; }

protected:
    registration_index(const registration_cache_options& options, unmap_watch& watch);
    ~registration_index();

    /// Called by the derived class's destructor first.
    void shut_down() noexcept;

    /// An entry with one more user, or null.
    [[nodiscard]] registration_entry* acquire_entry(std::span<std::byte> memory,
                                                    access_rights rights) noexcept;
    void release_entry(registration_entry& entry) noexcept;

private:
    // The device's part.
    [[nodiscard]] virtual registration_entry* make_entry() noexcept = 0;
    virtual void destroy_entry(registration_entry& entry) noexcept = 0;
    [[nodiscard]] virtual bool register_entry(registration_entry& entry, std::span<std::byte> pages,
                                              access_rights rights) noexcept = 0;
    /// `alive`: this process registered it. False in a child process.
    virtual void deregister_entry(registration_entry& entry, bool alive) noexcept = 0;

    /// Cached entries without users, the least recently used first.
    struct idle_list {
        registration_entry* first = nullptr;
        registration_entry* last = nullptr;
        std::size_t count = 0;
        std::size_t bytes = 0;

        void append(registration_entry& e) noexcept;
        void remove(registration_entry& e) noexcept;
    };

    [[nodiscard]] address_range pages_of(std::span<std::byte> memory) const noexcept;
    [[nodiscard]] registration_entry* find(const address_range& pages, access_rights rights) const noexcept;
    bool catch_up() noexcept;
    bool settles() noexcept;
    void drop_unmapped() noexcept;
    void forget_inherited() noexcept;
    registration_entry* add(const address_range& wanted, access_rights rights, bool known) noexcept;
    bool admits(const address_range& pages) noexcept;
    registration_entry* add_for_one_use(const address_range& pages, access_rights rights) noexcept;
    registration_entry* make(const address_range& pages, access_rights rights) noexcept;
    void evict() noexcept;
    void retire(registration_entry& e) noexcept;
    void end(registration_entry& e) noexcept;

    registration_cache_options options_;
    std::uintptr_t page_ = unmap_watch::page_bytes();
    unmap_watch* watch_;                  // null: nothing is cached
    std::uint64_t seen_ = 0;              // of the watch's sequence
    registration_entry* last_ = nullptr;  // the last one found
    range_index<registration_entry> kept_;
    std::size_t kept_bytes_ = 0;
    idle_list idle_;
    unsigned misses_while_full_ = 0;
    std::size_t leases_ = 0;
    registration_entry* spare_ = nullptr;
    registration_cache_statistics counts_;
    unmap_events unheard_;  // the watch writes here
    unmap_events heard_;
};

[[nodiscard]] inline std::span<std::byte> bytes_of(const address_range& pages) noexcept {
    return {reinterpret_cast<std::byte*>(pages.start), pages.end - pages.start};
}

}  // namespace detail

/// Registrations of a user's memory, cached after their use (lazy deregistration) until the memory is unmapped, or
/// other registrations need the room: bounded in number and bytes; the least recently used one without a lease is
/// dropped first. A registration covers whole pages and serves each request within it, with its rights or fewer.
///
/// Memory that was unmapped, moved or discarded, and mapped again, is registered anew. The kernel reports two changes to no
/// userfaultfd, and a registration is stale after them: `shmat(SHM_REMAP)` on top of registered memory, and
/// `MADV_GUARD_INSTALL` in it. A program that does either unmaps the memory before.
/// Memory that cannot be watched for that (see `detail::unmap_watch`: no userfaultfd, shared memory, files, huge pages) is
/// registered for each use; in a child process all memory is. Watching splits a mapping where the range begins and ends:
/// `mremap` of the whole then fails (`realloc` copies instead).
///
/// As MVAPICH's cache (lazy deregistration, reference counts, a tree by address) and FastMPJ's (bypass after a number of
/// misses in a row). For one thread, which also destroys the leases, before the cache. The device must have ended its
/// accesses to the memory before the lease is destroyed. A hit allocates nothing and takes no lock.
template <registrar R>
class registration_cache final : private detail::registration_index {
    struct entry;

public:
    using handle = typename R::handle;  ///< the registrar's handle of a registration

    /// Holds one registration; the memory must stay mapped as long. Empty when registration was impossible.
    class lease {
    public:
        lease() noexcept = default;
        lease(lease&& other) noexcept : owner_(other.owner_), entry_(other.entry_), memory_(other.memory_) {
            other.forget();
        }
        lease& operator=(lease&& other) noexcept {
            if (this != &other) {
                reset();
                owner_ = other.owner_;
                entry_ = other.entry_;
                memory_ = other.memory_;
                other.forget();
            }
            return *this;
        }
        ~lease() { reset(); }

        /// Ends the use. The registration usually stays cached.
        void reset() noexcept {
            entry* const held = entry_;
            forget();
            if (held != nullptr) owner_->release_entry(*held);
        }

        [[nodiscard]] explicit operator bool() const noexcept { return entry_ != nullptr; }
        /// The requested memory.
        [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }

        // Preconditions of the rest: not empty.

        /// The registration that covers the leased memory.
        [[nodiscard]] handle& registration() const noexcept { return *entry_->registration; }
        /// The registered pages; `memory()` begins at `offset()`.
        [[nodiscard]] std::span<std::byte> pages() const noexcept { return detail::bytes_of(entry_->pages); }
        /// From the beginning of the registration to the leased memory, in bytes.
        [[nodiscard]] std::size_t offset() const noexcept {
            return static_cast<std::size_t>(memory_.data() - pages().data());
        }
        /// At least the requested ones.
        [[nodiscard]] access_rights rights() const noexcept { return entry_->rights; }
        /// The descriptor of `memory()` for a peer.
        [[nodiscard]] remote_region remote() const noexcept
            requires requires(const handle& h) {
                { h.remote() } -> std::convertible_to<remote_region>;
            }
        {
            return remote_region(std::as_const(registration()).remote()).part(offset(), memory_.size());
        }

    private:
        friend registration_cache;
        lease(registration_cache* owner, entry* of, std::span<std::byte> memory) noexcept
            : owner_(owner), entry_(of), memory_(memory) {}
        void forget() noexcept {
            entry_ = nullptr;
            memory_ = {};
        }

        registration_cache* owner_ = nullptr;
        entry* entry_ = nullptr;
        std::span<std::byte> memory_{};
    };

    /// Borrows `device` for its life. Throws `std::bad_alloc`.
    explicit registration_cache(R& device, const registration_cache_options& options = {},
                                detail::unmap_watch& watch = detail::unmap_watch::of_process())
        : registration_index(options, watch), device_(device) {}
    /// Deregisters everything. No lease may exist any more.
    ~registration_cache() { shut_down(); }

    /// Registers `memory` for such accesses by peers, or finds it registered. Empty for empty memory, or when the device
    /// refuses.
    [[nodiscard]] lease acquire(std::span<std::byte> memory, access_rights rights) noexcept {
        auto* const found = static_cast<entry*>(acquire_entry(memory, rights));
        return found != nullptr ? lease(this, found, memory) : lease();
    }

    /// Whether `acquire` would find this registered. Counts nothing.
    using registration_index::holds;
    /// Drops all registrations; registrations in use are deregistered when their last lease is destroyed.
    using registration_index::clear;
    using registration_index::statistics;
    /// Whether registrations can be cached on this system.
    using registration_index::keeps;
    using registration_index::options;

private:
    struct entry : detail::registration_entry {
        detail::maybe<handle> registration;
    };

    detail::registration_entry* make_entry() noexcept override { return new (std::nothrow) entry; }
    void destroy_entry(detail::registration_entry& e) noexcept override { delete static_cast<entry*>(&e); }
    bool register_entry(detail::registration_entry& e, std::span<std::byte> pages,
                        access_rights rights) noexcept override {
        auto registered = device_.register_memory(pages, rights);
        if (registered) static_cast<entry&>(e).registration.emplace(std::move(*registered));
        return registered.has_value();
    }
    void deregister_entry(detail::registration_entry& e, bool alive) noexcept override {
        detail::maybe<handle>& registration = static_cast<entry&>(e).registration;
        if (alive) device_.deregister(*registration);
        registration.reset();
    }

    R& device_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/memory/impl/registration_cache.ipp>
#endif
