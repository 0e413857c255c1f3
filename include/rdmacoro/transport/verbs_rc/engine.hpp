// engine: the one of each verbs domain: device, completion queues, receive queues, and all connections.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/detail/connection_table.hpp>
#include <rdmacoro/transport/detail/pending_clients.hpp>
#include <rdmacoro/transport/detail/receive_pool.hpp>
#include <rdmacoro/transport/detail/serve_in_turn.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>
#include <rdmacoro/transport/verbs_rc/kernel_watch.hpp>
#include <rdmacoro/transport/verbs_rc/number_table.hpp>
#include <rdmacoro/transport/verbs_rc/session.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace rdmacoro::detail::verbs {

/// A completion queue, and the receive queue that its links share; for as many links as both have room for.
struct bank {
    bank(slot_pool& slots, receive_totals& totals) noexcept : receives(slots, totals) {}

    unique_queue queue;
    unique_receive_queue shared;  // none where links have receive queues of their own
    receive_queue receives;
    std::size_t entries = 0;        // of the completion queue
    std::size_t entries_held = 0;   // by links
    std::size_t receives_most = 0;  // of the receive queue
    std::uint64_t length = 0;       // completions that have come and are not handled: never more
    std::uint64_t taken = 0;        // completions; a poll that saw the queue empty counts `length` of them

    /// When `taken` is this, all that is in the queue now has been taken, also where it is never seen empty.
    [[nodiscard]] std::uint64_t all_taken_at() const noexcept { return taken + length; }
};

struct listening_tag;

/// Told when the device of its engine is gone.
class device_watcher : public list_node<listening_tag> {
public:
    virtual void device_gone() noexcept = 0;

protected:
    ~device_watcher() = default;
};

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
    [[nodiscard]] const verbs::device& device() const noexcept { return device_; }
    [[nodiscard]] page_cache& cache() noexcept { return cache_; }
    [[nodiscard]] region_list& regions() noexcept { return regions_; }
    [[nodiscard]] slot_pool& slots() noexcept { return slots_; }
    [[nodiscard]] polled_watcher& watching() noexcept { return watching_; }
    [[nodiscard]] rdma_event_channel* cm_channel() const noexcept { return cm_channel_.get(); }
    [[nodiscard]] bool by_cm() const noexcept { return by_cm_; }
    [[nodiscard]] verbs_counts counts() noexcept;
    /// Connections in any state.
    [[nodiscard]] std::size_t connections() const noexcept { return table_.size(); }

    RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;

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
    /// Whether links share receive queues.
    [[nodiscard]] bool shares_receives() const noexcept { return shares_receives_; }
    /// Memory that is locked for each link, in bytes.
    [[nodiscard]] std::size_t bytes_of_link() const noexcept {
        return (options_.credits + session::most_staged) * slots_.slot_bytes();
    }
    /// The device is gone, or a queue of it has failed: nothing can be opened any more.
    [[nodiscard]] bool broken() const noexcept { return broken_; }
    void device_gone() noexcept;
    /// Until it is unlinked, `which` is told.
    void watch_device(device_watcher& which) noexcept { watchers_.push_back(which); }

    // ---- for connections

    /// A connection that is opening. Nullptr: there is no memory, or there are too many.
    [[nodiscard]] session* make_session() noexcept;
    /// This end's greeting, in a request, an answer or a rejection.
    [[nodiscard]] greeting own_greeting() const noexcept;
    /// Reserves receive slots and completion entries for one more link.
    [[nodiscard]] failed_step hold_resources(bank*& from, receive_queue*& receives) noexcept;
    /// The queue pair that used them is destroyed. `loses`: so many slots as the link had may be lost with it, those that the device
    /// had taken from the shared queue; others are posted in their place as long as the domain lives.
    void release_resources(bank& from, receive_queue& receives, bool loses) noexcept;
    /// A queue pair with a receive queue of its own is destroyed: takes all slots back.
    void empty_own(const bank& of, receive_queue& receives) noexcept;
    /// Takes completions until the queue of `which` was seen empty, of a device that adds some as long as links have credit.
    void empty(const bank& which) noexcept;

    /// A client that has sent its data asks for a queue pair. False: too many have one and have not finished connecting; it waits for
    /// `session::pending_admitted`.
    [[nodiscard]] bool admit_pending(session& c) noexcept;
    /// One of those has finished, or failed.
    void pending_over(session& c) noexcept { pending_.leave(c); }
    void add_queue_pair(session& c) noexcept { by_number_.add(c); }
    void remove_queue_pair(session& c) noexcept { by_number_.remove(c); }
    void dirty(session& c) noexcept { dirty_.push_back(c); }
    void work(session& c) noexcept { work_.push_back(c); }
    void leaves(session& c) noexcept { table_.leaves(c); }
    /// Whether a link that closes may wait for its last frames: none has done so in vain since the last `progress`.
    [[nodiscard]] bool may_wait_for_draining() const noexcept { return waited_in_vain_ != epoch_; }
    void waited_in_vain() noexcept { waited_in_vain_ = epoch_; }
    /// Whether a link may wait for the device to give memory of gets and puts back: it is there, and no link has waited in vain since the
    /// last `progress`.
    [[nodiscard]] bool may_wait_for_flushes() const noexcept {
        return !broken_ && flushed_in_vain_ != epoch_;
    }
    void flushed_in_vain() noexcept { flushed_in_vain_ = epoch_; }

private:
    static constexpr int batch = 16;
    static constexpr unsigned pending_part = 4;  // of the most links
    static constexpr int grace_part =
        10;  // of the time for opening, for a client to answer while others wait

    inline void ring() noexcept;
    inline unsigned progress(bank& of) noexcept;
    inline void dispatch(const ibv_wc& wc) noexcept;
    inline void post_receives() noexcept;
    [[nodiscard]] static const verbs_options& checked(const verbs_options& options);
    void check_device() const;
    void open_queues();
    [[nodiscard]] bank* make_bank(const char*& step) noexcept;
    [[nodiscard]] bank* bank_with_room() noexcept;
    [[nodiscard]] receive_queue* own_receives() noexcept;
    [[nodiscard]] bool has_room_for_client() const noexcept {
        return pending_.size() < std::max(1u, options_.most_links / pending_part);
    }
    [[nodiscard]] duration pending_grace() const noexcept { return options_.handshake_timeout / grace_part; }
    void admit_waiting_clients() noexcept;
    void watch_own_descriptors();
    void devices_changed() noexcept;
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
    slot_pool slots_;
    receive_totals receive_totals_;
    std::vector<std::unique_ptr<bank>> banks_;
    std::vector<std::unique_ptr<receive_queue>> own_receives_;  // of one link each
    std::vector<receive_queue*> free_receives_;                 // of them
    bool shares_receives_ = true;
    bool broken_ = false;
    bool queue_failed_ = false;        // a completion queue cannot be read
    unsigned links_ = 0;               // that hold resources
    std::uint64_t lost_receives_ = 0;  // slots that the device may never give back
    own_handler cm_handler_;
    own_handler async_handler_;
    own_handler completion_handler_;
    kernel_watch devices_;

    std::uint64_t epoch_ = 1;
    std::uint64_t waited_in_vain_ = 0;   // the epoch of the last close that did
    std::uint64_t flushed_in_vain_ = 0;  // the epoch in which a link last waited for the device in vain

    // Clients of listeners that have not finished connecting.
    pending_clients<session> pending_;  // admitted: with a queue pair

    connection_table<session> table_;
    std::vector<std::uint32_t> generations_;  // by place
    number_table<session> by_number_;         // of queue pairs
    intrusive_list<session, dirty_tag> dirty_;
    intrusive_list<session, work_tag> work_;
    intrusive_list<device_watcher, listening_tag> watchers_;
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
