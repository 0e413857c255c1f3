// What is one for a verbs domain: the device, its completion queue and shared receive queue, and all connections.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/verbs_rc/core.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <fcntl.h>

namespace rdmacoro::detail::verbs {

/// Polls the device and knows whom what it says concerns.
class engine final : public region_owner {
public:
    /// Throws when the device can't be had; see `device`.
    inline engine(scheduler& owner, const verbs_options& options);
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    inline ~engine();

    [[nodiscard]] scheduler& owner() const noexcept { return owner_; }
    [[nodiscard]] const verbs_options& options() const noexcept { return options_; }
    [[nodiscard]] verbs::device& device() noexcept { return device_; }
    [[nodiscard]] page_cache& cache() noexcept { return cache_; }
    [[nodiscard]] region_list& regions() noexcept { return regions_; }
    [[nodiscard]] slot_pool& slots() noexcept { return slots_; }
    [[nodiscard]] rdma_event_channel* cm_channel() const noexcept { return cm_channel_.get(); }
    [[nodiscard]] ibv_cq* completion_queue() const noexcept { return queue_.get(); }
    [[nodiscard]] ibv_srq* receive_queue() const noexcept { return receive_queue_.get(); }
    [[nodiscard]] bool by_cm() const noexcept { return by_cm_; }
    [[nodiscard]] inline verbs_counts counts() noexcept;
    /// Connections in any state.
    [[nodiscard]] std::size_t connections() const noexcept { return connections_; }

    void deregister(std::uint64_t key) noexcept override { regions_.remove(key); }

    // ---- as a progress source

    inline bool poll() noexcept;
    [[nodiscard]] int wake_fd() const noexcept { return watcher_.descriptor(); }
    inline void arm() noexcept;
    inline void disarm() noexcept;

    /// Hands work requests and receive slots over, and takes completions in. Calls nobody above. Answers how many came.
    inline unsigned progress() noexcept;
    inline void ring() noexcept;
    /// Grows with each call of `progress`.
    [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
    /// Grows each time the completion queue was seen empty.
    [[nodiscard]] std::uint64_t dry() const noexcept { return dry_; }
    /// Grows each time that receive slots were posted.
    [[nodiscard]] std::uint64_t receives_posted() const noexcept { return receives_epoch_; }

    // ---- for connections

    /// A connection that is opening. Nullptr: there is no memory, or there are too many.
    [[nodiscard]] inline core* make_core() noexcept;
    /// What this end says of itself when it asks, accepts or rejects.
    [[nodiscard]] inline greeting own_greeting() const noexcept;
    /// Slots to be received into and completions for one more link. 0, or the number of an error.
    [[nodiscard]] inline int hold_resources() noexcept;
    inline void release_resources() noexcept;
    inline void add_queue_pair(core& c) noexcept;
    inline void remove_queue_pair(core& c) noexcept;
    /// Whether the device had slots to spare when the last one was recycled, of links that are gone: then none is posted in
    /// its place.
    [[nodiscard]] bool has_surplus() const noexcept { return surplus_; }
    /// The slot of a message that was consumed.
    inline void recycle(slot& s) noexcept;
    /// Takes a slot with a message out of the rounds, and puts a spare one in. False: there is none.
    [[nodiscard]] inline bool lend(slot& s) noexcept;
    inline void give_back_lent(slot& s) noexcept;
    void dirty(core& c) noexcept { dirty_.push_back(c); }
    void work(core& c) noexcept { work_.push_back(c); }
    void leaves(core& c) noexcept {
        static_cast<list_node<leaving_tag>&>(c).unlink();
        leaving_.push_back(c);
    }

    [[nodiscard]] bool watch(fd_handler& handler, int fd, std::uint32_t events) noexcept {
        return watcher_.watch(handler, fd, events);
    }
    void unwatch(fd_handler& handler) noexcept { watcher_.unwatch(handler); }
    /// Somebody waits for an event of a descriptor: look often until `awaits_no_more`.
    void awaits() noexcept { ++awaited_; }
    void awaits_no_more() noexcept { --awaited_; }

private:
    static constexpr int batch = 16;
    static constexpr unsigned links_budget = 64;
    static constexpr unsigned polls_between_looks = 256;
    static constexpr unsigned polls_between_looks_soon = 4;

    inline void dispatch(const ibv_wc& wc) noexcept;
    inline void post_receives() noexcept;
    [[nodiscard]] inline core* find(std::uint32_t number) noexcept;
    inline bool look_at_descriptors() noexcept;
    inline void read_cm_events() noexcept;
    inline void read_async_events() noexcept;
    inline void read_completion_events() noexcept;
    inline bool bury() noexcept;
    inline void destroy(core& c) noexcept;
    inline void fail_all(errc why) noexcept;

    struct own_handler : fd_handler {
        engine* self = nullptr;
    };

    scheduler& owner_;
    verbs_options options_;
    verbs::device device_;
    page_registrar registrar_;
    page_cache cache_;
    region_list regions_;
    bool by_cm_ = true;
    watcher watcher_;
    unique_event_channel cm_channel_;
    unique_completion_channel completion_channel_;
    unique_queue queue_;
    unique_receive_queue receive_queue_;
    slot_pool slots_;
    own_handler cm_handler_;
    own_handler async_handler_;
    own_handler completion_handler_;
    unsigned awaited_ = 0;
    unsigned polls_ = 0;

    std::size_t entries_ = 0;        // of the completion queue
    std::size_t entries_held_ = 0;   // by links
    std::size_t receives_most_ = 0;  // of the receive queue

    std::size_t wanted_ = 0;    // receive slots that peers have credits for
    std::size_t posted_ = 0;    // that the device has
    std::size_t unposted_ = 0;  // in `to_post_`
    std::size_t in_hand_ = 0;   // with messages that were not consumed yet
    bool surplus_ = false;
    std::size_t lent_ = 0;
    slot_queue to_post_;

    std::uint64_t epoch_ = 1;
    std::uint64_t dry_ = 0;
    std::uint64_t receives_epoch_ = 1;
    std::uint64_t receive_posts_ = 0;
    verbs_counts of_the_gone_{};

    std::size_t connections_ = 0;
    std::vector<core*> cores_;  // by index
    std::vector<std::uint32_t> free_indices_;
    std::vector<std::uint32_t> generations_;
    std::vector<core*> buckets_;  // by queue-pair number
    intrusive_list<core, all_tag> all_;
    intrusive_list<core, dirty_tag> dirty_;
    intrusive_list<core, work_tag> work_;
    intrusive_list<core, leaving_tag> leaving_;
};

}  // namespace rdmacoro::detail::verbs

#include <rdmacoro/transport/verbs_rc/cm.hpp>
#include <rdmacoro/transport/verbs_rc/core_receive.hpp>
#include <rdmacoro/transport/verbs_rc/core_send.hpp>
#include <rdmacoro/transport/verbs_rc/engine_loop.hpp>
#include <rdmacoro/transport/verbs_rc/exchange.hpp>
#include <rdmacoro/transport/verbs_rc/one_sided.hpp>
