// The part of a registration cache that does not depend on the device.
#pragma once

#include <rdmacoro/memory/registration_cache.hpp>

#include <sched.h>
#include <unistd.h>

namespace rdmacoro::detail {

[[nodiscard]] inline std::size_t length_of(const address_range& pages) noexcept {
    return pages.end - pages.start;
}

RDMACORO_DECL void registration_index::idle_list::append(registration_entry& e) noexcept {
    e.previous = last;
    e.next = nullptr;
    (last != nullptr ? last->next : first) = &e;
    last = &e;
    ++count;
    bytes += length_of(e.pages);
}

RDMACORO_DECL void registration_index::idle_list::remove(registration_entry& e) noexcept {
    (e.previous != nullptr ? e.previous->next : first) = e.next;
    (e.next != nullptr ? e.next->previous : last) = e.previous;
    --count;
    bytes -= length_of(e.pages);
}

RDMACORO_DECL registration_index::registration_index(const registration_cache_options& options,
                                                     unmap_watch& watch)
    : options_(options), watch_(watch.available() ? &watch : nullptr), kept_(options.max_entries) {
    if (watch_ == nullptr) return;
    seen_ = watch_->sequence();
    watch_->subscribe(unheard_);
}

RDMACORO_DECL registration_index::~registration_index() = default;

RDMACORO_DECL void registration_index::shut_down() noexcept {
    if (leases_ != 0) fatal("a registration_cache was destroyed while a lease exists");
    clear();
    if (watch_ != nullptr) watch_->unsubscribe(unheard_);
    while (registration_entry* const spare = spare_) {
        spare_ = spare->next;
        destroy_entry(*spare);
    }
}

RDMACORO_DECL registration_entry* registration_index::acquire_entry(std::span<std::byte> memory,
                                                                    access_rights rights) noexcept {
    if (memory.empty()) return nullptr;
    const address_range pages = pages_of(memory);
    const bool known = catch_up();
    registration_entry* found = known ? find(pages, rights) : nullptr;
    if (found != nullptr) [[likely]] {
        ++counts_.hits;
        misses_while_full_ = 0;
        last_ = found;
        if (found->users == 0) idle_.remove(*found);
    } else {
        ++counts_.misses;
        found = add(pages, rights, known);
        if (found == nullptr) return nullptr;
    }
    ++found->users;
    ++leases_;
    return found;
}

RDMACORO_DECL void registration_index::release_entry(registration_entry& e) noexcept {
    --leases_;
    if (--e.users != 0) return;
    if (e.kept) {
        idle_.append(e);
    } else {
        end(e);
    }
}

RDMACORO_DECL bool registration_index::holds(std::span<std::byte> memory, access_rights rights) noexcept {
    return !memory.empty() && catch_up() && find(pages_of(memory), rights) != nullptr;
}

RDMACORO_DECL void registration_index::clear() noexcept {
    forget_inherited();
    while (!kept_.empty()) retire(*kept_.back());
}

RDMACORO_DECL registration_cache_statistics registration_index::statistics() const noexcept {
    registration_cache_statistics now = counts_;
    now.entries = kept_.size();
    return now;
}

RDMACORO_DECL address_range registration_index::pages_of(std::span<std::byte> memory) const noexcept {
    const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
    return {start & ~(page_ - 1), (start + memory.size() + page_ - 1) & ~(page_ - 1)};
}

RDMACORO_DECL registration_entry* registration_index::find(const address_range& pages,
                                                           access_rights rights) const noexcept {
    if (last_ != nullptr && last_->pages.start <= pages.start && pages.end <= last_->pages.end &&
        allows(last_->rights, rights))
        return last_;
    return kept_.find(pages, [=](const registration_entry& e) { return allows(e.rights, rights); });
}

/// Drops the entries of unmapped memory. False when it is not known which memory is being unmapped.
RDMACORO_DECL bool registration_index::catch_up() noexcept {
    if (watch_ == nullptr || kept_.empty()) return true;
    if (options_.others_unmap && !watch_->settled() && !settles()) return false;
    if (watch_->sequence() != seen_) [[unlikely]]
        drop_unmapped();
    return true;
}

[[gnu::noinline]] RDMACORO_DECL bool registration_index::settles() noexcept {
    constexpr int tries = 64;  // the watcher needs to run once
    for (int i = 0; i < tries; ++i) {
        ::sched_yield();
        if (watch_->settled()) return true;
    }
    return false;
}

[[gnu::noinline]] RDMACORO_DECL void registration_index::drop_unmapped() noexcept {
    forget_inherited();
    if (watch_ == nullptr) return;
    seen_ = watch_->take(unheard_, heard_);
    if (heard_.overflowed()) {
        counts_.invalidated += kept_.size();
        while (!kept_.empty()) retire(*kept_.back());
        return;
    }
    for (const address_range& unmapped : heard_) {
        while (registration_entry* stale = kept_.overlapping(unmapped)) {
            ++counts_.invalidated;
            retire(*stale);
        }
    }
}

/// In a child process the watch and the registrations are the parent's.
RDMACORO_DECL void registration_index::forget_inherited() noexcept {
    if (watch_ == nullptr || !watch_->inherited()) return;
    watch_ = nullptr;
    while (!kept_.empty()) retire(*kept_.back());
}

[[gnu::noinline]] RDMACORO_DECL registration_entry*
registration_index::add(const address_range& wanted, access_rights rights, bool known) noexcept {
    if (watch_ != nullptr && watch_->sequence() != seen_) drop_unmapped();
    if (watch_ == nullptr) ++counts_.unwatchable;
    if (watch_ == nullptr || !known) return add_for_one_use(wanted, rights);

    // No cached registration lies within another: one with too few rights is replaced as a whole, and so are the
    // registrations that the new one covers.
    address_range pages = wanted;
    access_rights granted = rights;
    if (const registration_entry* around = kept_.find(wanted, [](const registration_entry&) { return true; }))
        pages = around->pages;
    kept_.for_each_within(pages, [&](const registration_entry& e) { granted = granted | e.rights; });
    if (!admits(pages)) return add_for_one_use(wanted, rights);
    if (!watch_->watch(pages)) {
        ++counts_.unwatchable;
        return add_for_one_use(wanted, rights);
    }
    while (registration_entry* replaced = kept_.within(pages)) retire(*replaced);
    while (kept_.size() >= options_.max_entries || kept_bytes_ + length_of(pages) > options_.max_bytes)
        evict();
    registration_entry* made = make(pages, granted);
    if (made == nullptr) {
        watch_->unwatch(pages);
        const bool asked_more = granted != rights || length_of(pages) != length_of(wanted);
        return asked_more ? add_for_one_use(wanted, rights) : nullptr;
    }
    made->kept = true;
    kept_.insert(*made);
    kept_bytes_ += length_of(pages);
    last_ = made;
    return made;
}

/// Whether there is room, or can be made, and it makes sense. While no registration is found again, evicting
/// registrations that may be needed soon is of no use; but after as many misses again the cached ones were of no use
/// either, and it starts anew.
RDMACORO_DECL bool registration_index::admits(const address_range& pages) noexcept {
    std::size_t entries = kept_.size() + 1;
    std::size_t bytes = kept_bytes_ + length_of(pages);
    std::size_t idle = idle_.count;
    std::size_t idle_bytes = idle_.bytes;
    kept_.for_each_within(pages, [&](const registration_entry& e) {
        --entries;
        bytes -= length_of(e.pages);
        idle -= e.users == 0 ? 1 : 0;
        idle_bytes -= e.users == 0 ? length_of(e.pages) : 0;
    });
    if (entries <= options_.max_entries && bytes <= options_.max_bytes) return true;
    if (++misses_while_full_ > options_.bypass_after) {
        if (misses_while_full_ / 2 >= options_.bypass_after) misses_while_full_ = 0;
        return false;
    }
    return entries - idle <= options_.max_entries && bytes - idle_bytes <= options_.max_bytes;
}

RDMACORO_DECL registration_entry* registration_index::add_for_one_use(const address_range& pages,
                                                                      access_rights rights) noexcept {
    registration_entry* made = make(pages, rights);
    if (made != nullptr) ++counts_.bypassed;
    return made;
}

/// A new registration. Drops unused ones, more each time, while the device refuses.
RDMACORO_DECL registration_entry* registration_index::make(const address_range& pages,
                                                           access_rights rights) noexcept {
    registration_entry* made = spare_;
    if (made != nullptr) {
        spare_ = made->next;
    } else {
        made = make_entry();
        if (made == nullptr) return nullptr;
    }
    for (std::size_t more = 1;; more *= 2) {
        if (register_entry(*made, bytes_of(pages), rights)) {
            made->pages = pages;
            made->rights = rights;
            made->kept = false;
            made->process = ::getpid();
            counts_.registered_bytes += length_of(pages);
            return made;
        }
        if (idle_.count == 0) break;
        for (std::size_t i = 0; i < more && idle_.count != 0; ++i) evict();
    }
    made->next = std::exchange(spare_, made);
    return nullptr;
}

RDMACORO_DECL void registration_index::evict() noexcept {
    ++counts_.evictions;
    retire(*idle_.first);
}

/// Is not found any more; deregistered now, or when its last lease is destroyed.
RDMACORO_DECL void registration_index::retire(registration_entry& e) noexcept {
    if (last_ == &e) last_ = nullptr;
    kept_.erase(e);
    kept_bytes_ -= length_of(e.pages);
    e.kept = false;
    if (watch_ != nullptr) watch_->unwatch(e.pages);
    if (e.users != 0) return;
    idle_.remove(e);
    end(e);
}

RDMACORO_DECL void registration_index::end(registration_entry& e) noexcept {
    deregister_entry(e, e.process == ::getpid());
    counts_.registered_bytes -= length_of(e.pages);
    e.next = std::exchange(spare_, &e);
}

}  // namespace rdmacoro::detail
