// engine: the one of each verbs domain: device, completion queue, shared receive queue, and all connections.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/detail/connection_table.hpp>
#include <rdmacoro/transport/detail/receive_pool.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>
#include <rdmacoro/transport/verbs_rc/session.hpp>

#include <cstdint>
#include <vector>

namespace rdmacoro::detail::verbs {

/// Polls the device and hands each completion and event to its session.
class engine final : public region_owner {
public:
    /// Throws when the device cannot be opened; see `device`.
    engine(scheduler& owner, const verbs_options& options);
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    ~engine();

    [[nodiscard]] scheduler& owner() const noexcept { return owner_; }
    [[nodiscard]] const verbs_options& options() const noexcept { return options_; }
    [[nodiscard]] verbs::device& device() noexcept { return device_; }
    [[nodiscard]] page_cache& cache() noexcept { return cache_; }
    [[nodiscard]] region_list& regions() noexcept { return regions_; }
    [[nodiscard]] slot_pool& slots() noexcept { return slots_; }
    [[nodiscard]] receive_pool<slot_pool>& receives() noexcept { return receives_; }
    [[nodiscard]] polled_watcher& watching() noexcept { return watching_; }
    [[nodiscard]] rdma_event_channel* cm_channel() const noexcept { return cm_channel_.get(); }
    [[nodiscard]] ibv_cq* completion_queue() const noexcept { return queue_.get(); }
    [[nodiscard]] ibv_srq* receive_queue() const noexcept { return receive_queue_.get(); }
    [[nodiscard]] bool by_cm() const noexcept { return by_cm_; }
    [[nodiscard]] verbs_counts counts() noexcept;
    /// Connections in any state.
    [[nodiscard]] std::size_t connections() const noexcept { return table_.size(); }

    void deregister(std::uint64_t key) noexcept override { regions_.remove(key); }

    // ---- as a progress source

    bool poll() noexcept;
    [[nodiscard]] int wake_fd() const noexcept { return watching_.descriptor(); }
    void arm() noexcept;
    void disarm() noexcept;

    /// Hands work requests and receive slots to the device, and takes completions. Calls no listener. Returns how many
    /// completions there were.
    inline unsigned progress() noexcept;
    /// Grows with each call of `progress`.
    [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
    /// Grows each time the completion queue was seen empty.
    [[nodiscard]] std::uint64_t empty_polls() const noexcept { return empty_polls_; }
    /// Grows each time that receive slots were posted.
    [[nodiscard]] std::uint64_t receives_posted() const noexcept { return receives_epoch_; }

    // ---- for connections

    /// A connection that is opening. Nullptr: there is no memory, or there are too many.
    [[nodiscard]] session* make_session() noexcept;
    /// This end's greeting, in a request, an answer or a rejection.
    [[nodiscard]] greeting own_greeting() const noexcept;
    /// Reserves receive slots and completion entries for one more link. 0, or the number of an error.
    [[nodiscard]] int hold_resources() noexcept;
    void release_resources() noexcept;
    void add_queue_pair(session& c) noexcept;
    void remove_queue_pair(session& c) noexcept;
    void dirty(session& c) noexcept { dirty_.push_back(c); }
    void work(session& c) noexcept { work_.push_back(c); }
    void leaves(session& c) noexcept { table_.leaves(c); }

private:
    static constexpr int batch = 16;
    static constexpr unsigned links_budget = 64;

    inline void ring() noexcept;
    inline void dispatch(const ibv_wc& wc) noexcept;
    void post_receives() noexcept;
    [[nodiscard]] inline session* find(std::uint32_t number) noexcept;
    void check_options() const;
    void open_queues();
    void watch_own_descriptors();
    void read_cm_events() noexcept;
    void read_async_events() noexcept;
    void read_completion_events() noexcept;
    void fail_all(errc why) noexcept;

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
    polled_watcher watching_;
    unique_event_channel cm_channel_;
    unique_completion_channel completion_channel_;
    unique_queue queue_;
    unique_receive_queue receive_queue_;
    slot_pool slots_;
    receive_pool<slot_pool> receives_;
    own_handler cm_handler_;
    own_handler async_handler_;
    own_handler completion_handler_;

    std::size_t entries_ = 0;        // of the completion queue
    std::size_t entries_held_ = 0;   // by links
    std::size_t receives_most_ = 0;  // of the receive queue

    std::uint64_t epoch_ = 1;
    std::uint64_t empty_polls_ = 0;
    std::uint64_t receives_epoch_ = 1;
    std::uint64_t receive_posts_ = 0;

    connection_table<session> table_;
    std::vector<std::uint32_t> generations_;  // by place
    std::vector<session*> buckets_;           // by queue-pair number
    intrusive_list<session, dirty_tag> dirty_;
    intrusive_list<session, work_tag> work_;
};

}  // namespace rdmacoro::detail::verbs

#include <rdmacoro/transport/verbs_rc/message_path.hpp>

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/cm.ipp>
#include <rdmacoro/transport/verbs_rc/impl/engine.ipp>
#include <rdmacoro/transport/verbs_rc/impl/exchange.ipp>
#include <rdmacoro/transport/verbs_rc/impl/one_sided.ipp>
#include <rdmacoro/transport/verbs_rc/impl/session.ipp>
#endif
