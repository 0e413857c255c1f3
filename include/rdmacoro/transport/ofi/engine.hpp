// What is one for a libfabric domain: the provider's endpoint and completion queue, and all connections.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/ofi/core.hpp>
#include <rdmacoro/transport/ofi/matched.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace rdmacoro::detail::fabric {

/// Polls the provider and knows whom what it says concerns.
class engine final : public region_owner {
public:
    /// How long a get or put that its owner gives up may take to end by itself, before the endpoint is given up with it.
    static constexpr auto patience = std::chrono::milliseconds(100);
    /// How long what a peer sent last may be under way when it has hung up without a last frame.
    static constexpr duration grace = std::chrono::milliseconds(50);

    /// Longest message that ofi_rxm sends without a get, which is none of ours.
    static constexpr std::size_t most_slot_without_gets = 16384;

    /// How long a frame that was sent may be reported later than one behind it.
    static constexpr duration patience_with_gaps = std::chrono::seconds(2);

    /// Throws when the provider can't be had; see `device`.
    inline engine(scheduler& owner, const ofi_profile& profile, const ofi_options& options);
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    inline ~engine();

    [[nodiscard]] scheduler& owner() const noexcept { return owner_; }
    [[nodiscard]] const ofi_options& options() const noexcept { return options_; }
    /// Of addresses: that of the type, not of the provider that `any` became.
    [[nodiscard]] std::string_view scheme() const noexcept { return scheme_; }
    [[nodiscard]] fabric::device& device() noexcept { return device_; }
    [[nodiscard]] memory_access& memory() noexcept { return memory_; }
    [[nodiscard]] page_cache& cache() noexcept { return cache_; }
    [[nodiscard]] region_list& regions() noexcept { return regions_; }
    [[nodiscard]] slot_pool& slots() noexcept { return slots_; }
    [[nodiscard]] bool serves() const noexcept { return serves_; }
    [[nodiscard]] std::uint64_t host() const noexcept { return host_; }
    [[nodiscard]] std::size_t inject_limit() const noexcept { return inject_limit_; }
    /// Room for one message that is injected.
    [[nodiscard]] std::byte* scratch() noexcept { return scratch_.data(); }
    [[nodiscard]] inline ofi_counts counts() noexcept;
    /// Connections in any state.
    [[nodiscard]] std::size_t connections() const noexcept { return connections_; }

    inline void deregister(std::uint64_t key) noexcept override;

    // ---- as a progress source

    inline bool poll() noexcept;
    [[nodiscard]] inline int wake_fd() noexcept;
    void arm() noexcept { polls_ = polls_between_looks; }
    void disarm() noexcept { polls_ = polls_between_looks; }

    /// Takes completions in, and gives those who found no room another try. Calls nobody above. Answers how many came.
    inline unsigned progress() noexcept;
    /// Grows each time the completion queue was seen empty.
    [[nodiscard]] std::uint64_t dry() const noexcept { return dry_; }

    // ---- for connections

    /// A connection that is opening. Nullptr: there is no memory, or there are too many.
    [[nodiscard]] inline core* make_core() noexcept;
    /// Slots for one more link. 0, or libfabric's negative number.
    [[nodiscard]] inline int hold_resources(core& c) noexcept;
    inline void release_resources(core& c) noexcept;
    /// False: another could not be opened when the last was given up.
    [[nodiscard]] bool has_endpoint() const noexcept { return !broken_; }
    /// The slot of a message that was consumed.
    inline void recycle(slot& s) noexcept;
    /// Takes a slot with a message out of the rounds. False: too many are.
    [[nodiscard]] inline bool lend(slot& s) noexcept;
    inline void give_back_lent(slot& s) noexcept;
    void sends_slot() noexcept { ++sending_; }
    void work(core& c) noexcept { work_.push_back(c); }
    void stalled(core& c) noexcept { stalled_.push_back(c); }
    void matches(core& c) noexcept { matched_.push_back(c); }
    void leaves(core& c) noexcept {
        static_cast<list_node<leaving_tag>&>(c).unlink();
        leaving_.push_back(c);
    }
    /// What the peer of `c` has under way in memory that `c` exposed ends when the region does. Where nothing less than the
    /// endpoint's end makes it so, all links end.
    inline void cut_off(core& c, bool peer_lives) noexcept;
    /// Gives the endpoint up, and with it all links, because the provider does not let go of memory. Opens another.
    inline void reopen_endpoint() noexcept;

    [[nodiscard]] bool watch(fd_handler& handler, int fd, std::uint32_t events) noexcept {
        return watcher_.watch(handler, fd, events);
    }
    void unwatch(fd_handler& handler) noexcept { watcher_.unwatch(handler); }
    /// Somebody waits for an event of a descriptor: look often until `awaits_no_more`.
    void awaits() noexcept { ++awaited_; }
    void awaits_no_more() noexcept { --awaited_; }
    inline bool look_at_descriptors() noexcept;

private:
    static constexpr std::size_t batch = 16;
    static constexpr unsigned links_budget = 64;
    static constexpr unsigned polls_between_looks = 256;
    static constexpr unsigned polls_between_looks_soon = 4;

    inline void dispatch(const fi_cq_msg_entry& entry) noexcept;
    inline void dispatch_error() noexcept;
    inline void slot_over(slot& s, std::size_t bytes, int error) noexcept;
    inline void post_receives() noexcept;
    inline void unbind() noexcept;
    inline void refill() noexcept;
    [[nodiscard]] inline std::size_t receives_wanted() const noexcept;
    [[nodiscard]] inline core* find(std::uint64_t number) noexcept;
    inline bool bury() noexcept;
    inline void destroy(core& c) noexcept;
    inline void settle(std::uint64_t region_key) noexcept;
    [[nodiscard]] inline bool gets() noexcept;
    [[nodiscard]] inline bool disconnected(core& c) noexcept;

    scheduler& owner_;
    ofi_options options_;
    std::string_view scheme_;
    fabric::device device_;
    bool serves_;
    std::size_t inject_limit_;
    std::uint64_t host_;
    memory_access memory_;
    page_registrar registrar_;
    page_cache cache_;
    region_list regions_;
    slot_pool slots_;
    std::vector<std::byte> scratch_;
    watcher watcher_;
    fd_handler completions_;  // only wakes
    key_source numbers_;
    unsigned awaited_ = 0;
    unsigned polls_ = 0;
    bool broken_ = false;  // there is no endpoint

    std::size_t wanted_ = 0;  // receive slots that peers have credits for
    std::size_t posted_ = 0;  // that the provider has
    std::size_t queued_ = 0;  // in `to_post_`
    std::size_t held_ = 0;    // with messages that were not consumed yet
    std::size_t lent_ = 0;
    std::size_t sending_ = 0;
    slot_queue to_post_;

    std::uint64_t epoch_ = 0;
    std::uint64_t dry_ = 0;
    ofi_counts of_the_gone_{};

    std::size_t connections_ = 0;
    std::vector<core*> cores_;  // by place
    std::vector<std::uint32_t> free_places_;
    intrusive_list<core, all_tag> all_;
    intrusive_list<core, work_tag> work_;
    intrusive_list<core, stalled_tag> stalled_;
    intrusive_list<core, leaving_tag> leaving_;
    intrusive_list<core, matched_tag> matched_;  // those whose messages the provider matches
};

}  // namespace rdmacoro::detail::fabric

#include <rdmacoro/transport/ofi/core_receive.hpp>
#include <rdmacoro/transport/ofi/core_send.hpp>
#include <rdmacoro/transport/ofi/engine_loop.hpp>
#include <rdmacoro/transport/ofi/exchange.hpp>
#include <rdmacoro/transport/ofi/matched_loop.hpp>
#include <rdmacoro/transport/ofi/matched_open.hpp>
#include <rdmacoro/transport/ofi/one_sided.hpp>
