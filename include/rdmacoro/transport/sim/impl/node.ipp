// One node of a simulated network.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/transport/sim/node.hpp>

#include <algorithm>

namespace rdmacoro::detail::sim {

RDMACORO_DECL remote_region regions::add(std::span<std::byte> memory, access_rights rights,
                                         sim_world& world) {
    std::size_t slot = entries_.size();
    if (!free_.empty()) {
        slot = free_.back();
        free_.pop_back();
    } else if (slot < most_) {
        entries_.emplace_back();
        free_.reserve(entries_.capacity());  // so that `remove` never allocates
    } else {
        return {};
    }
    entries_[slot] = {reinterpret_cast<std::uint64_t>(memory.data()), memory.size(),
                      (world.next_key() | 1u << slot_bits) << slot_bits | slot, rights};
    return entries_[slot];
}

RDMACORO_DECL void regions::remove(std::uint64_t key) noexcept {
    entries_[slot_of(key)].key = 0;
    free_.push_back(slot_of(key));
}

RDMACORO_DECL errc regions::check(const remote_region& asked, access_rights wanted) const noexcept {
    if (asked.key == 0 || slot_of(asked.key) >= entries_.size()) return errc::bad_key;
    const remote_region& have = at(asked.key);
    if (have.key != asked.key) return errc::bad_key;
    if (asked.address < have.address || asked.address - have.address > have.length ||
        asked.length > have.length - (asked.address - have.address))
        return errc::out_of_bounds;
    return allows(have.rights, wanted) ? errc::ok : errc::access_denied;
}

RDMACORO_DECL std::size_t regions::slot_of(std::uint64_t key) noexcept {
    return key & ((1u << slot_bits) - 1);
}

RDMACORO_DECL node::node(scheduler& owner, const sim_options& options)
    : owner_(owner),
      options_(options),
      world_(options.world != nullptr ? *options.world : owner.service<sim_world>()),
      regions_(options.max_regions) {
    world_.attach(owner);
    number_ = world_.next_node();
    lingering_owner_.of = this;
    if (options_.offered.needs_registration && options_.caches_registrations) cache_.emplace(registrar_);
}

RDMACORO_DECL node::~node() {
    if (links_ != 0) fatal("a simulated domain, or its scheduler, was destroyed before its links");
    if (regions_.registered() != lingering_.size())
        fatal("a simulated domain, or its scheduler, was destroyed before a region of its memory");
    world_.detach();
}

RDMACORO_DECL region node::register_memory(std::span<std::byte> memory, access_rights rights) {
    require_thread_of(&owner_, "memory for", "was registered");
    const remote_region made = regions_.add(memory, rights, world_);
    if (made.key == 0)
        throw_error(errc::no_resources, "register_memory: the node's table of regions is full");
    registered_now(memory.size());
    return region(*this, memory, made);
}

RDMACORO_DECL time_point node::depart(std::size_t bytes) noexcept {
    const sim_costs& cost = world_.options().costs;
    processor_free_ = std::max(world_.clock_now(), processor_free_) + cost.overhead;
    const time_point last = std::max(processor_free_, adapter_free_) + on_the_wire(bytes);
    adapter_free_ = last + cost.gap;
    return last;
}

RDMACORO_DECL duration node::on_the_wire(std::size_t bytes) const noexcept {
    if (bytes <= 1) return {};
    return duration(
        static_cast<duration::rep>((bytes - 1) * world_.options().costs.picoseconds_per_byte / 1000));
}

RDMACORO_DECL bool node::resources_fail() noexcept {
    return exhausted_ || world_.chance(world_.options().faults.no_resources);
}

RDMACORO_DECL region node::expose(std::span<std::byte> memory, access_rights rights) noexcept {
    if (resources_fail()) return {};
    if (options_.offered.revokes_at_once) {
        const remote_region made = regions_.add(memory, rights, world_);
        if (made.key == 0) return {};
        registered_now(memory.size());
        return region(*this, memory, made);
    }
    const auto address = reinterpret_cast<std::uint64_t>(memory.data());
    for (auto old = lingering_.begin(); old != lingering_.end(); ++old) {
        const remote_region had = regions_.at(*old);
        if (had.address != address || had.length != memory.size() || had.rights != rights) continue;
        lingering_.erase(old);
        return region(lingering_owner_, memory, had);
    }
    const remote_region made = regions_.add(memory, rights, world_);
    if (made.key == 0) return {};
    registered_now(memory.size());
    return region(lingering_owner_, memory, made);
}

RDMACORO_DECL errc node::check(const remote_region& asked, access_rights wanted) const noexcept {
    return regions_.check(asked, wanted);
}

RDMACORO_DECL void node::registered_now(std::size_t bytes) noexcept {
    const sim_costs& cost = world_.options().costs;
    count(&sim_counts::registrations);
    const auto pages = static_cast<duration::rep>((bytes + 4095) / 4096);
    processor_free_ =
        std::max(world_.clock_now(), processor_free_) + cost.registration + cost.per_page * pages;
}

RDMACORO_DECL local_cache::lease node::register_local(std::span<std::byte> memory) noexcept {
    if (cache_) return cache_->acquire(memory, access_rights::all);
    if (options_.offered.needs_registration) registered_now(memory.size());
    return {};
}

RDMACORO_DECL registration_cache_statistics node::cached() const noexcept {
    return cache_ ? cache_->statistics() : registration_cache_statistics{};
}

RDMACORO_DECL bool node::prepare_in_place(std::span<const std::byte> memory) {
    if (resources_fail()) return false;
    if (cache_) {
        static_cast<void>(register_local({const_cast<std::byte*>(memory.data()), memory.size()}));
        return in_place(memory);
    }
    if (prepared_.contains(memory)) return true;
    if (options_.offered.needs_registration) registered_now(memory.size());
    prepared_.add(memory);
    return true;
}

RDMACORO_DECL bool node::in_place(std::span<const std::byte> memory) noexcept {
    if (cache_)
        return cache_->holds({const_cast<std::byte*>(memory.data()), memory.size()}, access_rights::all);
    return prepared_.contains(memory);
}

RDMACORO_DECL void node::deregister(std::uint64_t key) noexcept {
    require_thread_of(&owner_, "memory for", "was deregistered");
    regions_.remove(key);
}
RDMACORO_DECL void node::lingering_owner::deregister(std::uint64_t key) noexcept {
    require_thread_of(&of->owner_, "memory for", "was deregistered");
    of->lingering_.push_back(key);
    if (of->lingering_.size() <= of->options_.lingering_regions) return;
    of->regions_.remove(of->lingering_.front());
    of->lingering_.pop_front();
}

}  // namespace rdmacoro::detail::sim
