// One node of a simulated network: its processor, its network card and its registered memory.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/bytes.hpp>
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
    [[nodiscard]] remote_region add(std::span<std::byte> memory, access_rights rights, sim_world& world);
    void remove(std::uint64_t key) noexcept;
    [[nodiscard]] const remote_region& at(std::uint64_t key) const noexcept { return entries_[slot_of(key)]; }
    [[nodiscard]] std::size_t registered() const noexcept { return entries_.size() - free_.size(); }

    [[nodiscard]] errc check(const remote_region& asked, access_rights wanted) const noexcept;

private:
    static constexpr unsigned slot_bits = 16;
    [[nodiscard]] static std::size_t slot_of(std::uint64_t key) noexcept;

    std::size_t most_;
    std::vector<remote_region> entries_;
    std::vector<std::size_t> free_;
};

/// The state of a domain, without the transport's types.
class node : public region_owner {
public:
    node(scheduler& owner, const sim_options& options);
    node(const node&) = delete;
    node& operator=(const node&) = delete;
    ~node();

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
                                         access_rights rights = access_rights::all);

    /// The same for the elements of a vector, array or span of another trivially copyable type.
    template <detail::other_range_to_write Range>
    [[nodiscard]] region register_memory(Range&& elements, access_rights rights = access_rights::all) {
        return register_memory(detail::range_bytes(elements), rights);
    }
    RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;

    // ---- requested faults

    /// Silent: nothing comes from it and nothing reaches it, and no link is notified. Not silent: everything goes on.
    void set_silent(bool silent) noexcept;
    [[nodiscard]] bool silent() const noexcept { return silent_; }
    /// Nothing can be exposed, got or put; or it can again.
    void set_exhausted(bool exhausted) noexcept;
    /// Breaks every link to `peer`.
    void drop_links_to(const node& peer) noexcept;
    /// Messages to `peer` are answered `retry`, or no longer.
    void set_no_room_to(const node& peer, bool none) noexcept;
    /// Messages to `peer` stay under way, or go on.
    void hold_messages_to(const node& peer, bool held) noexcept;

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
    [[nodiscard]] time_point depart(std::size_t bytes) noexcept;
    /// How long a card takes from the first to the last byte.
    [[nodiscard]] duration on_the_wire(std::size_t bytes) const noexcept;

    [[nodiscard]] bool exhausted() const noexcept { return exhausted_; }
    [[nodiscard]] bool resources_fail() noexcept;
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept;
    [[nodiscard]] errc check(const remote_region& asked, access_rights wanted) const noexcept;
    /// Memory was registered just now.
    void registered_now(std::size_t bytes) noexcept;

    /// The node's own memory, for a get or put.
    [[nodiscard]] local_cache::lease register_local(std::span<std::byte> memory) noexcept;
    /// Of local memory; zeros without a cache.
    [[nodiscard]] registration_cache_statistics cached() const noexcept;

    [[nodiscard]] bool prepare_in_place(std::span<const std::byte> memory);
    [[nodiscard]] bool in_place(std::span<const std::byte> memory) noexcept;

private:
    /// Takes over exposed memory that stays registered after its region's end.
    struct lingering_owner final : region_owner {
        node* of = nullptr;
        RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;
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
    time_point adapter_free_{};
    std::uint32_t number_ = 0;
    std::size_t links_ = 0;
    bool silent_ = false;
    bool exhausted_ = false;
    sim_counts counts_;
};

}  // namespace rdmacoro::detail::sim

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/node.ipp>
#endif
