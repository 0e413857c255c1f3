// registration_cache: keeps memory registered after its use, for transports whose registration is expensive.
#pragma once

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

#include <sched.h>
#include <sys/types.h>
#include <unistd.h>

namespace rdmacoro {

/// Registers memory with a device; a transport's. Semantic requirements:
///  1. `register_memory(pages, rights)`: whole pages. Empty when that is not possible now; the cache then gives up
///     registrations nobody uses, and asks again.
///  2. `deregister(handle)` is called once for each registration, when nobody uses it any more. The memory may have been
///     unmapped by then, or be mapped anew.
///  3. Neither calls the cache.
///  4. Where `handle.remote()` exists it describes the registered pages, and `lease::remote()` the part that was asked for.
template <class R>
concept registrar =
    requires(R& r, std::span<std::byte> pages, access_rights rights, typename R::handle& handle) {
        requires std::is_nothrow_move_constructible_v<typename R::handle>;
        { r.register_memory(pages, rights) } noexcept -> std::same_as<std::optional<typename R::handle>>;
        { r.deregister(handle) } noexcept;
    };

struct registration_cache_options {
    std::size_t max_entries = 1024;                ///< kept; those that could not be kept are not counted
    std::size_t max_bytes = std::size_t{1} << 30;  ///< kept, in bytes of whole pages
    unsigned bypass_after = 64;                    ///< misses in a row while full; 0: never push another out
    bool others_unmap =
        true;  ///< false: only the cache's own thread ever maps and unmaps memory; saves a system call a hit
};

struct registration_cache_statistics {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t evictions = 0;       ///< pushed out by others
    std::uint64_t invalidated = 0;     ///< what they registered was unmapped, moved or thrown away
    std::uint64_t bypassed = 0;        ///< registered for one use only, for whatever reason
    std::uint64_t unwatchable = 0;     ///< of these, because the memory cannot be watched
    std::size_t entries = 0;           ///< kept now
    std::size_t registered_bytes = 0;  ///< registered now, kept or for one use
};

/// Registrations of a user's memory, kept after their use (lazy deregistration) until memory is unmapped, or others need
/// the room: bounded in number and bytes, least recently used out first, only those that nobody uses. A registration
/// covers whole pages and serves each request that lies in it, with the rights it has or fewer.
///
/// Never serves a stale registration: memory that was unmapped, moved or thrown away, and mapped again, is registered
/// anew. What cannot be watched for that (see `detail::unmap_watch`: no userfaultfd, shared memory, files, huge pages)
/// is registered for each use. So is, in a child process, everything. Watching splits a mapping where the range begins and
/// ends: `mremap` of the whole then fails (`realloc` copies instead).
///
/// As MVAPICH's cache (lazy deregistration, reference counts, a tree by address) and FastMPJ's (bypass after a number of
/// misses in a row). For one thread, which also destroys the leases; they must be gone before the cache, and so must be
/// the uses of the memory by the device before the lease. A hit allocates nothing and takes no lock.
template <registrar R>
class registration_cache {
    struct entry;

public:
    using handle = typename R::handle;

    /// Keeps one registration in use; the memory must stay mapped as long. Empty when registration was impossible.
    class lease {
    public:
        lease() noexcept = default;
        lease(lease&& other) noexcept
            : entry_(std::exchange(other.entry_, nullptr)), memory_(std::exchange(other.memory_, {})) {}
        lease& operator=(lease&& other) noexcept {
            if (this != &other) {
                reset();
                entry_ = std::exchange(other.entry_, nullptr);
                memory_ = std::exchange(other.memory_, {});
            }
            return *this;
        }
        ~lease() { reset(); }

        /// Ends the use. The registration usually stays.
        void reset() noexcept {
            if (entry_ != nullptr) entry_->owner->release(*std::exchange(entry_, nullptr));
            memory_ = {};
        }

        [[nodiscard]] explicit operator bool() const noexcept { return entry_ != nullptr; }
        /// What was asked for.
        [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }

        // Preconditions of the rest: not empty.

        [[nodiscard]] handle& registration() const noexcept { return *entry_->registration; }
        /// What is registered: whole pages, `memory()` among them from `offset()` on.
        [[nodiscard]] std::span<std::byte> pages() const noexcept { return bytes_of(entry_->pages); }
        [[nodiscard]] std::size_t offset() const noexcept {
            return static_cast<std::size_t>(memory_.data() - pages().data());
        }
        /// At least what was asked for.
        [[nodiscard]] access_rights rights() const noexcept { return entry_->rights; }
        /// What to tell a peer about `memory()`.
        [[nodiscard]] remote_region remote() const noexcept
            requires requires(const handle& h) {
                { h.remote() } -> std::convertible_to<remote_region>;
            }
        {
            return remote_region(std::as_const(registration()).remote()).part(offset(), memory_.size());
        }

    private:
        friend registration_cache;
        lease(entry* of, std::span<std::byte> memory) noexcept : entry_(of), memory_(memory) {}

        entry* entry_ = nullptr;
        std::span<std::byte> memory_{};
    };

    /// Borrows `device` for its life. Throws `std::bad_alloc`.
    explicit registration_cache(R& device, const registration_cache_options& options = {},
                                detail::unmap_watch& watch = detail::unmap_watch::of_process())
        : device_(device),
          options_(options),
          watch_(watch.available() ? &watch : nullptr),
          kept_(options.max_entries) {
        if (watch_ == nullptr) return;
        seen_ = watch_->sequence();
        watch_->subscribe(unheard_);
    }
    registration_cache(const registration_cache&) = delete;
    registration_cache& operator=(const registration_cache&) = delete;
    /// Deregisters everything. No lease may exist any more.
    ~registration_cache() {
        if (leases_ != 0) detail::fatal("a registration_cache was destroyed while a lease exists");
        clear();
        if (watch_ != nullptr) watch_->unsubscribe(unheard_);
        while (spare_ != nullptr) delete std::exchange(spare_, spare_->next);
    }

    /// Registers `memory` for a peer's accesses of that kind, or finds it registered. Empty when there is nothing to
    /// register or the device refuses.
    [[nodiscard]] lease acquire(std::span<std::byte> memory, access_rights rights) noexcept {
        if (memory.empty()) return {};
        const detail::address_range pages = pages_of(memory);
        const bool known = catch_up();
        entry* found = known ? find(pages, rights) : nullptr;
        if (found != nullptr) [[likely]] {
            ++counts_.hits;
            misses_while_full_ = 0;
            last_ = found;
            if (found->users == 0) idle_.remove(*found);
        } else {
            ++counts_.misses;
            found = add(pages, rights, known);
            if (found == nullptr) return {};
        }
        ++found->users;
        ++leases_;
        return lease(found, memory);
    }

    /// Whether `acquire` would find this registered. Counts nothing.
    [[nodiscard]] bool holds(std::span<std::byte> memory, access_rights rights) noexcept {
        return !memory.empty() && catch_up() && find(pages_of(memory), rights) != nullptr;
    }

    /// Forgets all registrations; those in use are deregistered when their last lease goes.
    void clear() noexcept {
        forget_inherited();
        while (!kept_.empty()) retire(*kept_.back());
    }

    [[nodiscard]] registration_cache_statistics statistics() const noexcept {
        registration_cache_statistics now = counts_;
        now.entries = kept_.size();
        return now;
    }
    /// Whether anything can be kept on this system.
    [[nodiscard]] bool keeps() const noexcept { return watch_ != nullptr; }
    [[nodiscard]] const registration_cache_options& options() const noexcept { return options_; }

private:
    struct entry {
        detail::address_range pages;
        access_rights rights = access_rights::none;
        bool kept = false;  // in kept_, and watched
        pid_t process = 0;  // that registered it, and may deregister it
        std::size_t users = 0;
        registration_cache* owner = nullptr;
        entry* previous = nullptr;  // in idle_
        entry* next = nullptr;      // in idle_ or spare_
        std::optional<handle> registration;
    };

    /// Kept and not in use, the least recently used first.
    struct idle_list {
        entry* first = nullptr;
        entry* last = nullptr;
        std::size_t count = 0;
        std::size_t bytes = 0;

        void append(entry& e) noexcept {
            e.previous = last;
            e.next = nullptr;
            (last != nullptr ? last->next : first) = &e;
            last = &e;
            ++count;
            bytes += length(e.pages);
        }
        void remove(entry& e) noexcept {
            (e.previous != nullptr ? e.previous->next : first) = e.next;
            (e.next != nullptr ? e.next->previous : last) = e.previous;
            --count;
            bytes -= length(e.pages);
        }
    };

    static std::size_t length(const detail::address_range& pages) noexcept { return pages.end - pages.start; }
    static std::span<std::byte> bytes_of(const detail::address_range& pages) noexcept {
        return {reinterpret_cast<std::byte*>(pages.start), pages.end - pages.start};
    }
    detail::address_range pages_of(std::span<std::byte> memory) const noexcept {
        const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
        return {start & ~(page_ - 1), (start + memory.size() + page_ - 1) & ~(page_ - 1)};
    }

    entry* find(const detail::address_range& pages, access_rights rights) const noexcept {
        if (last_ != nullptr && last_->pages.start <= pages.start && pages.end <= last_->pages.end &&
            allows(last_->rights, rights))
            return last_;
        return kept_.find(pages, [&](const entry& e) { return allows(e.rights, rights); });
    }

    /// Drops what was unmapped. False when it is not known what is being unmapped just now.
    bool catch_up() noexcept {
        if (watch_ == nullptr || kept_.empty()) return true;
        if (options_.others_unmap && !watch_->settled() && !settles()) return false;
        if (watch_->sequence() != seen_) [[unlikely]]
            drop_unmapped();
        return true;
    }
    [[gnu::noinline]] bool settles() noexcept {
        constexpr int tries = 64;  // the watcher needs to run once
        for (int i = 0; i < tries; ++i) {
            ::sched_yield();
            if (watch_->settled()) return true;
        }
        return false;
    }
    [[gnu::noinline]] void drop_unmapped() noexcept {
        forget_inherited();
        if (watch_ == nullptr) return;
        seen_ = watch_->take(unheard_, heard_);
        if (heard_.overflowed()) {
            counts_.invalidated += kept_.size();
            while (!kept_.empty()) retire(*kept_.back());
            return;
        }
        for (const detail::address_range& gone : heard_) {
            while (entry* stale = kept_.overlapping(gone)) {
                ++counts_.invalidated;
                retire(*stale);
            }
        }
    }
    /// In a child process: the watch is the parent's, and so is what it registered.
    void forget_inherited() noexcept {
        if (watch_ == nullptr || !watch_->inherited()) return;
        watch_ = nullptr;
        while (!kept_.empty()) retire(*kept_.back());
    }

    [[gnu::noinline]] entry* add(const detail::address_range& wanted, access_rights rights,
                                 bool known) noexcept {
        if (watch_ != nullptr && watch_->sequence() != seen_) drop_unmapped();
        if (watch_ == nullptr) ++counts_.unwatchable;
        if (watch_ == nullptr || !known) return add_for_one_use(wanted, rights);

        // No kept registration lies within another: one that has too few rights is replaced as a whole, and so are those
        // that the new one covers.
        detail::address_range pages = wanted;
        access_rights granted = rights;
        if (const entry* around = kept_.find(wanted, [](const entry&) { return true; }))
            pages = around->pages;
        kept_.for_each_within(pages, [&](const entry& e) { granted = granted | e.rights; });
        if (!admits(pages)) return add_for_one_use(wanted, rights);
        if (!watch_->watch(pages)) {
            ++counts_.unwatchable;
            return add_for_one_use(wanted, rights);
        }
        while (entry* replaced = kept_.within(pages)) retire(*replaced);
        while (kept_.size() >= options_.max_entries || kept_bytes_ + length(pages) > options_.max_bytes)
            evict();
        entry* made = make(pages, granted);
        if (made == nullptr) {
            watch_->unwatch(pages);
            const bool asked_more = granted != rights || length(pages) != length(wanted);
            return asked_more ? add_for_one_use(wanted, rights) : nullptr;
        }
        made->kept = true;
        kept_.insert(*made);
        kept_bytes_ += length(pages);
        last_ = made;
        return made;
    }

    /// Whether there is room, or can be made, and it makes sense. Where nothing is found again pushing out what may be
    /// needed soon is of no use; but when all those were of no use either, it is time to begin anew.
    bool admits(const detail::address_range& pages) noexcept {
        std::size_t entries = kept_.size() + 1;
        std::size_t bytes = kept_bytes_ + length(pages);
        std::size_t idle = idle_.count;
        std::size_t idle_bytes = idle_.bytes;
        kept_.for_each_within(pages, [&](const entry& e) {
            --entries;
            bytes -= length(e.pages);
            idle -= e.users == 0 ? 1 : 0;
            idle_bytes -= e.users == 0 ? length(e.pages) : 0;
        });
        if (entries <= options_.max_entries && bytes <= options_.max_bytes) return true;
        if (++misses_while_full_ > options_.bypass_after) {
            if (misses_while_full_ / 2 >= options_.bypass_after) misses_while_full_ = 0;
            return false;
        }
        return entries - idle <= options_.max_entries && bytes - idle_bytes <= options_.max_bytes;
    }

    entry* add_for_one_use(const detail::address_range& pages, access_rights rights) noexcept {
        entry* made = make(pages, rights);
        if (made != nullptr) ++counts_.bypassed;
        return made;
    }

    /// A new registration. Gives up those not in use, more each time, while the device refuses.
    entry* make(const detail::address_range& pages, access_rights rights) noexcept {
        entry* made = spare_;
        if (made != nullptr) {
            spare_ = made->next;
        } else {
            made = new (std::nothrow) entry;
            if (made == nullptr) return nullptr;
        }
        for (std::size_t more = 1;; more *= 2) {
            if (auto registered = device_.register_memory(bytes_of(pages), rights)) {
                made->pages = pages;
                made->rights = rights;
                made->kept = false;
                made->process = ::getpid();
                made->owner = this;
                made->registration.emplace(std::move(*registered));
                counts_.registered_bytes += length(pages);
                return made;
            }
            if (idle_.count == 0) break;
            for (std::size_t i = 0; i < more && idle_.count != 0; ++i) evict();
        }
        made->next = std::exchange(spare_, made);
        return nullptr;
    }

    void evict() noexcept {
        ++counts_.evictions;
        retire(*idle_.first);
    }
    /// Will not be found again; deregistered now, or when its last user goes.
    void retire(entry& e) noexcept {
        if (last_ == &e) last_ = nullptr;
        kept_.erase(e);
        kept_bytes_ -= length(e.pages);
        e.kept = false;
        if (watch_ != nullptr) watch_->unwatch(e.pages);
        if (e.users != 0) return;
        idle_.remove(e);
        end(e);
    }
    void release(entry& e) noexcept {
        --leases_;
        if (--e.users != 0) return;
        if (e.kept) {
            idle_.append(e);
        } else {
            end(e);
        }
    }
    void end(entry& e) noexcept {
        if (e.process == ::getpid()) device_.deregister(*e.registration);
        counts_.registered_bytes -= length(e.pages);
        e.registration.reset();
        e.next = std::exchange(spare_, &e);
    }

    R& device_;
    registration_cache_options options_;
    std::uintptr_t page_ = detail::unmap_watch::page_bytes();
    detail::unmap_watch* watch_;  // null: keep nothing
    std::uint64_t seen_ = 0;      // of the watch's sequence
    entry* last_ = nullptr;       // that was asked for, among those kept
    detail::range_index<entry> kept_;
    std::size_t kept_bytes_ = 0;
    idle_list idle_;
    unsigned misses_while_full_ = 0;
    std::size_t leases_ = 0;
    entry* spare_ = nullptr;
    registration_cache_statistics counts_;
    detail::unmap_events unheard_;  // the watch writes here
    detail::unmap_events heard_;
};

}  // namespace rdmacoro
