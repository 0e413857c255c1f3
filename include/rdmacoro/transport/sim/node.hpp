// One node of a simulated network: its processor, its network card and its registered memory.
#pragma once

#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/transport/sim/world.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace rdmacoro::detail::sim {

/// Registered memory of one node. Keys are drawn by the world, so that they are the same in each run.
class regions {
public:
    explicit regions(std::size_t most) noexcept : most_(std::min<std::size_t>(most, 65536)) {}

    /// Key 0: the table is full.
    [[nodiscard]] remote_region add(std::span<std::byte> memory, access_rights rights, sim_world& world) {
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
    void remove(std::uint64_t key) noexcept {
        entries_[slot_of(key)].key = 0;
        free_.push_back(slot_of(key));
    }
    [[nodiscard]] const remote_region& at(std::uint64_t key) const noexcept { return entries_[slot_of(key)]; }
    [[nodiscard]] std::size_t registered() const noexcept { return entries_.size() - free_.size(); }

    [[nodiscard]] errc check(const remote_region& asked, access_rights wanted) const noexcept {
        if (asked.key == 0 || slot_of(asked.key) >= entries_.size()) return errc::bad_key;
        const remote_region& have = at(asked.key);
        if (have.key != asked.key) return errc::bad_key;
        if (asked.address < have.address || asked.address - have.address > have.length ||
            asked.length > have.length - (asked.address - have.address))
            return errc::out_of_bounds;
        return allows(have.rights, wanted) ? errc::ok : errc::access_denied;
    }

private:
    static constexpr unsigned slot_bits = 16;
    [[nodiscard]] static std::size_t slot_of(std::uint64_t key) noexcept {
        return key & ((1u << slot_bits) - 1);
    }

    std::size_t most_;
    std::vector<remote_region> entries_;
    std::vector<std::size_t> free_;
};

/// What is one for a domain, without the transport's types.
class node : public region_owner {
public:
    node(scheduler& owner, const sim_options& options)
        : owner_(owner),
          options_(options),
          world_(options.world != nullptr ? *options.world : owner.service<sim_world>()),
          regions_(options.max_regions) {
        world_.attach(owner);
        number_ = world_.next_node();
        lingering_owner_.of = this;
        if (options_.offered.needs_registration && options_.caches_registrations) cache_.emplace(registrar_);
    }
    node(const node&) = delete;
    node& operator=(const node&) = delete;
    ~node() {
        if (links_ != 0) fatal("a simulated domain was destroyed before its links");
        world_.detach();
    }

    [[nodiscard]] scheduler& owner() noexcept { return owner_; }
    [[nodiscard]] sim_world& world() noexcept { return world_; }
    [[nodiscard]] const sim_options& options() const noexcept { return options_; }
    [[nodiscard]] const sim_counts& counts() const noexcept { return counts_; }
    /// Among the nodes of its world, from 0 in the order made.
    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    /// Memory that is registered now, that which lingers included.
    [[nodiscard]] std::size_t registered() const noexcept { return regions_.registered(); }

    /// Makes memory reachable for every peer. Throws `errc::no_resources` when the table is full.
    [[nodiscard]] region register_memory(std::span<std::byte> memory,
                                         access_rights rights = access_rights::all) {
        const remote_region made = regions_.add(memory, rights, world_);
        if (made.key == 0)
            throw_error(errc::no_resources, "register_memory: the node's table of regions is full");
        registered_now(memory.size());
        return region(*this, memory, made);
    }
    void deregister(std::uint64_t key) noexcept override { regions_.remove(key); }

    // ---- requested faults

    /// Nothing comes from it and nothing reaches it any more, and nobody is told; or all goes on.
    inline void set_silent(bool silent) noexcept;
    [[nodiscard]] bool silent() const noexcept { return silent_; }
    /// Nothing can be exposed, got or put; or it can again.
    inline void set_exhausted(bool exhausted) noexcept;
    /// Breaks every link to `peer`.
    inline void drop_links_to(const node& peer) noexcept;
    /// Messages to `peer` are answered `retry`, or no longer.
    inline void set_no_room_to(const node& peer, bool none) noexcept;
    /// Messages to `peer` stay under way, or go on.
    inline void hold_messages_to(const node& peer, bool held) noexcept;

    // ---- for links

    [[nodiscard]] std::uint64_t bit() const noexcept { return std::uint64_t{1} << (number_ % 64); }
    template <class Count>
    void count(Count sim_counts::* what, std::uint64_t by = 1) noexcept {
        counts_.*what += by;
        world_.counts().*what += by;
    }
    void link_made() noexcept { ++links_; }
    void link_gone() noexcept { --links_; }

    /// The processor posts a message of `bytes` bytes; when its last byte is on the wire.
    [[nodiscard]] time_point depart(std::size_t bytes) noexcept {
        const sim_costs& cost = world_.options().costs;
        processor_free_ = std::max(world_.clock_now(), processor_free_) + cost.overhead;
        const time_point last = std::max(processor_free_, card_free_) + on_the_wire(bytes);
        card_free_ = last + cost.gap;
        return last;
    }
    /// How long a card takes from the first to the last byte.
    [[nodiscard]] duration on_the_wire(std::size_t bytes) const noexcept {
        if (bytes <= 1) return {};
        return duration(
            static_cast<duration::rep>((bytes - 1) * world_.options().costs.picoseconds_per_byte / 1000));
    }

    [[nodiscard]] bool exhausted() const noexcept { return exhausted_; }
    [[nodiscard]] bool resources_fail() noexcept {
        return exhausted_ || world_.chance(world_.options().faults.no_resources);
    }
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept {
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
    [[nodiscard]] errc check(const remote_region& asked, access_rights wanted) const noexcept {
        return regions_.check(asked, wanted);
    }
    /// Memory was registered just now.
    void registered_now(std::size_t bytes) noexcept {
        const sim_costs& cost = world_.options().costs;
        count(&sim_counts::registrations);
        const auto pages = static_cast<duration::rep>((bytes + 4095) / 4096);
        processor_free_ =
            std::max(world_.clock_now(), processor_free_) + cost.registration + cost.per_page * pages;
    }

    /// The node's own memory, for a get or put.
    [[nodiscard]] local_cache::lease register_local(std::span<std::byte> memory) noexcept {
        if (cache_) return cache_->acquire(memory, access_rights::all);
        if (options_.offered.needs_registration) registered_now(memory.size());
        return {};
    }
    /// Of local memory; zeros without a cache.
    [[nodiscard]] registration_cache_statistics cached() const noexcept {
        return cache_ ? cache_->statistics() : registration_cache_statistics{};
    }

    [[nodiscard]] bool prepare_in_place(std::span<const std::byte> memory) {
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
    [[nodiscard]] bool in_place(std::span<const std::byte> memory) noexcept {
        if (cache_)
            return cache_->holds({const_cast<std::byte*>(memory.data()), memory.size()}, access_rights::all);
        return prepared_.contains(memory);
    }

private:
    /// Where exposed memory that stays registered goes at its region's end.
    struct lingering_owner final : region_owner {
        node* of = nullptr;
        void deregister(std::uint64_t key) noexcept override {
            of->lingering_.push_back(key);
            if (of->lingering_.size() <= of->options_.lingering_regions) return;
            of->regions_.remove(of->lingering_.front());
            of->lingering_.pop_front();
        }
    };
    template <class Function>
    void each_lane_to(const node& peer, Function function) noexcept;

    scheduler& owner_;
    sim_options options_;
    sim_world& world_;
    regions regions_;
    lingering_owner lingering_owner_;
    std::deque<std::uint64_t> lingering_;  // keys, the oldest first
    memory_watch prepared_;
    local_registrar registrar_{
        [](void* self, std::size_t bytes) noexcept { static_cast<node*>(self)->registered_now(bytes); },
        this};
    std::optional<local_cache> cache_;
    time_point processor_free_{};
    time_point card_free_{};
    std::uint32_t number_ = 0;
    std::size_t links_ = 0;
    bool silent_ = false;
    bool exhausted_ = false;
    sim_counts counts_;
};

}  // namespace rdmacoro::detail::sim
