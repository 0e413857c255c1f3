// engine: the one of each libfabric domain: the provider's endpoint and completion queue, and all connections.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/detail/connection_table.hpp>
#include <rdmacoro/transport/detail/link_timer.hpp>
#include <rdmacoro/transport/detail/pending_clients.hpp>
#include <rdmacoro/transport/detail/poll_pace.hpp>
#include <rdmacoro/transport/detail/receive_pool.hpp>
#include <rdmacoro/transport/detail/serve_in_turn.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>
#include <rdmacoro/transport/ofi/matched.hpp>
#include <rdmacoro/transport/ofi/patience.hpp>
#include <rdmacoro/transport/ofi/session.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rdmacoro::detail::fabric {

struct listening_tag;

/// A listener as its engine knows it.
struct listening : list_node<listening_tag> {
    using function = void (*)(listening& self) noexcept;
    function domain_broke = nullptr;  // called once
};

/// Polls the provider and hands each completion to its session.
class engine final : public region_owner {
public:
    /// How long the last frames of a peer that hung up without a `bye` may still be under way.
    static constexpr duration grace = std::chrono::milliseconds(50);

    /// Longest message that ofi_rxm sends without a get of its own.
    static constexpr std::size_t most_slot_without_gets = 16384;

    /// How much later than its successor a frame may be reported.
    static constexpr duration patience_with_gaps = std::chrono::seconds(2);

    /// Throws when the provider cannot be opened; see `device`.
    engine(scheduler& owner, const ofi_profile& profile, const ofi_options& options);
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    ~engine();

    [[nodiscard]] scheduler& owner() const noexcept { return owner_; }
    [[nodiscard]] const ofi_options& options() const noexcept { return options_; }
    /// Of addresses: that of the type, not of the provider that `any` became.
    [[nodiscard]] std::string_view scheme() const noexcept { return scheme_; }
    [[nodiscard]] fabric::device& device() noexcept { return device_; }
    [[nodiscard]] memory_access& memory() noexcept { return memory_; }
    [[nodiscard]] page_cache& cache() noexcept { return cache_; }
    [[nodiscard]] region_list& regions() noexcept { return regions_; }
    [[nodiscard]] slot_pool& slots() noexcept { return slots_; }
    [[nodiscard]] receive_pool<slot_pool>& receives() noexcept { return receives_; }
    [[nodiscard]] polled_watcher& watching() noexcept { return watching_; }
    [[nodiscard]] bool serves() const noexcept { return serves_; }
    [[nodiscard]] std::uint64_t host() const noexcept { return host_; }
    [[nodiscard]] std::size_t inject_limit() const noexcept { return inject_limit_; }
    /// Room for one message that is injected.
    [[nodiscard]] std::byte* scratch() noexcept { return scratch_.data(); }
    [[nodiscard]] ofi_counts counts() noexcept;
    /// Connections in any state.
    [[nodiscard]] std::size_t connections() const noexcept { return table_.size(); }

    RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;

    // ---- as a progress source

    bool poll() noexcept;
    [[nodiscard]] int wake_fd() noexcept;
    void arm() noexcept { poll_next(); }
    void disarm() noexcept { poll_next(); }

    /// Takes completions, and lets sessions that found no room try again. Calls no listener. Returns how many completions there
    /// were.
    inline unsigned progress() noexcept;
    /// Takes what has arrived, where the provider wants that before its endpoint closes.
    void read_out() noexcept;
    /// Grows each time the completion queue was seen empty.
    [[nodiscard]] std::uint64_t empty_polls() const noexcept { return empty_polls_; }

    // ---- for connections

    /// A frame was sent; its answer may come at once.
    void posted() noexcept { pace_.posted(); }
    /// The provider has one more slot or piece of a transfer, and reports when it has done with it.
    void given() noexcept { ++given_; }
    void taken_back() noexcept { --given_; }
    /// `progress` for one that waits: peers may wait for answers of this side meanwhile.
    void progress_waiting() noexcept;
    /// Polls until `still()` is false, or `with` is over. True: it is still true. Meanwhile this thread does nothing else.
    template <class Still>
    [[nodiscard]] bool wait_while(Still still, patience with = {}) noexcept {
        while (still()) {
            if (with.over(patience::clock::now())) return true;
            progress_waiting();
        }
        return false;
    }
    /// The same for peers that read memory of links that are closed here: for 100 ms at most, and, within a second after one has stood still so
    /// long, 1 ms.
    template <class Still>
    void wait_for_readers(Still still) noexcept {
        const auto began = patience::clock::now();
        const auto most = std::chrono::milliseconds(began < hasty_until_ ? 1 : 100);
        for (patience with; still(); progress_waiting()) {
            if (with.over(patience::clock::now(), most)) {
                hasty_until_ = began + std::chrono::seconds(1);
                return;
            }
        }
    }
    /// A connection that is opening. Nullptr: there is no memory, or there are too many.
    [[nodiscard]] session* make_session() noexcept;
    /// A client that has shown its connect_info asks for slots. False: those that have not finished connecting hold as much as they may;
    /// it waits for `session::pending_admitted`.
    [[nodiscard]] bool admit_pending(session& c) noexcept;
    /// One that was admitted holds slots for so many credits.
    void pending_holds(std::uint32_t credits) noexcept { pending_credits_ += credits; }
    /// It has finished connecting, or failed to.
    void pending_over(session& c, std::uint32_t credits) noexcept {
        pending_.leave(c);
        pending_credits_ -= credits;
    }
    /// Credits for the peer of one more link, out of the receives that the provider takes. 0: too few are left.
    [[nodiscard]] std::uint32_t credits_for_one() const noexcept;
    /// Slots for one more link; its peer gets so many credits. 0, or libfabric's negative number.
    [[nodiscard]] int hold_resources(std::uint32_t credits) noexcept;
    void release_resources(session& c) noexcept;
    /// A link is open: idle ones send a frame now and then.
    void begin_heartbeat() noexcept;
    /// False: the domain is broken, and `why_broken` is the reason.
    [[nodiscard]] bool has_endpoint() const noexcept { return !broken_; }
    /// For people: "read the completion queue: Queue has been overrun".
    [[nodiscard]] std::string why_broken() const;
    void listens(listening& l) noexcept { listening_.push_back(l); }
    /// The last failure that the provider reported, in its words; empty: none.
    [[nodiscard]] const char* last_failure() const noexcept { return last_failure_.data(); }
    /// The provider reported a failure in an error entry, or as the answer of a call.
    void note_failure(fid_cq& queue, const fi_cq_err_entry& entry) noexcept;
    void note_failure(const char* step, long failed) noexcept;
    /// An injected message was not sent, and the provider does not say by which link: each that has sent anything sends one frame more,
    /// with a completion. A peer that misses a frame before it ends the link.
    void inject_failed() noexcept;
    void count_failed_inject() noexcept { ++table_.closed_totals().failed_injects; }
    /// The slot of a frame that was consumed.
    inline void recycle(slot& s) noexcept;
    void work(session& c) noexcept { work_.push_back(c); }
    void stalled(session& c) noexcept { stalled_.push_back(c); }
    /// The provider matches the messages of `c` from now on.
    void matches(session& c) noexcept;
    void matches_no_more(session& c) noexcept;
    /// Something may soon be over at the tagged endpoint of `c`: each poll looks at it for a while.
    void matched_works(session& c) noexcept;
    void serves_for(session& c) noexcept { serving_.push_back(c); }
    void leaves(session& c) noexcept { table_.leaves(c); }
    /// Whether the end of the provider's connection to a peer, which `disconnected` shows, keeps it from memory that was exposed to it.
    /// ofi_rxm is busy for other reasons, too, when it counts.
    [[nodiscard]] bool access_ends_with_connection() const noexcept {
        return !serves_ && device_.profile().access_ends_with == ofi_access::connection && !options_.counters;
    }
    /// Whether that connection has ended; asks the provider by sending a frame. Precondition: `access_ends_with_connection()`.
    [[nodiscard]] bool disconnected(session& c) noexcept;
    /// Ends transfers of the peer of `c` in memory that `c` exposed. Where only closing the endpoint ends them, all links end.
    void cut_off(session& c) noexcept;
    /// Closes the endpoint, and with it all links, because the provider does not release memory. Opens another.
    void reopen_endpoint() noexcept;

private:
    static constexpr std::size_t batch = 16;
    /// Empty looks after which a tagged endpoint is at rest.
    static constexpr unsigned looks_at_work = 256;
    /// Tagged endpoints at rest that a poll looks at: with a thousand, each has its turn as often as if a poll looked at all.
    static constexpr unsigned looks_at_rest = 16;
    /// Of the receives, and of the clients that a listener lets wait: for those that have not finished connecting.
    static constexpr unsigned pending_part = 4;
    /// Of the time for opening: for a client to go on while others wait.
    static constexpr int grace_part = 10;

    /// Whether a turn that does not poll could delay nothing but what a peer sends on its own account.
    [[nodiscard]] bool at_rest() const noexcept {
        return rests_ && given_ == 0 && work_.empty() && stalled_.empty() && matched_at_work_.empty() &&
               !table_.any_leaving() && !pending_.any_waiting();
    }
    void poll_next() noexcept {
        watching_.look_next();
        pace_.posted();
    }
    inline void dispatch(const fi_cq_msg_entry& entry) noexcept;
    /// False: there is no error entry.
    [[nodiscard]] bool dispatch_error() noexcept;
    /// The next poll ends the endpoint and all links: step `what` failed with libfabric's number `failed`.
    void must_break(const char* what, long failed) noexcept;
    void break_down() noexcept;
    void beat() noexcept;
    /// Closes the endpoint, or abandons it: links end. False: no other may be opened.
    [[nodiscard]] bool end_endpoint() noexcept;
    inline void slot_over(slot& s, std::size_t bytes, int error) noexcept;
    /// A slot that was sent; its link, if there is one.
    inline session* slot_back(slot& s) noexcept;
    void post_receives() noexcept;
    [[nodiscard]] unsigned progress_matched() noexcept;
    void pump_stalled() noexcept;
    [[nodiscard]] bool has_room_for_client() const noexcept;
    [[nodiscard]] duration pending_grace() const noexcept { return options_.handshake_timeout / grace_part; }
    void admit_waiting_clients() noexcept;
    void check_options() const;
    [[nodiscard]] bool watch_completions() noexcept;
    void unbind() noexcept;
    [[nodiscard]] inline session* find(std::uint64_t number) noexcept;
    void settle(std::uint64_t region_key) noexcept;
    [[nodiscard]] bool touched(std::uint64_t region_key) noexcept;
    [[nodiscard]] bool gets() noexcept;

    scheduler& owner_;
    ofi_options options_;
    std::string_view scheme_;
    fabric::device device_;
    bool serves_;
    patience::clock::time_point hasty_until_{};  // a peer has stood still
    std::size_t inject_limit_;
    std::uint64_t host_;
    memory_access memory_;
    page_registrar registrar_;
    page_cache cache_;
    region_list regions_;
    slot_pool slots_;
    receive_pool<slot_pool> receives_;
    std::vector<std::byte> scratch_;
    polled_watcher watching_;
    fd_handler completions_;  // only wakes
    key_source numbers_;
    bool broken_ = false;  // there is no endpoint
    bool breaks_ = false;  // there will be none from the next poll on
    const char* broken_step_ = "";
    long broken_by_ = 0;  // libfabric's number; 0: none
    std::array<char, 192> last_failure_{};

    bool rests_;  // the scheduler's time goes on by itself
    poll_pace pace_;
    std::size_t given_ = 0;  // slots and pieces that the provider has, without the slots to receive into
    std::uint64_t epoch_ = 0;
    std::uint64_t empty_polls_ = 0;

    pending_clients<session> pending_;
    std::size_t pending_credits_ = 0;  // that their peers have

    connection_table<session> table_;
    intrusive_list<session, work_tag> work_;
    intrusive_list<session, stalled_tag> stalled_;
    // Sessions that leave matching to the provider: each poll looks at those of the first list, and at some of the second in turn.
    intrusive_list<session, matched_tag> matched_at_work_;
    intrusive_list<session, matched_tag> matched_at_rest_;
    std::size_t matched_links_ = 0;
    std::uint64_t matched_looks_ = 0;
    intrusive_list<session, serving_tag> serving_;  // sessions with gets and puts of their peers
    intrusive_list<listening, listening_tag> listening_;
    link_timer heartbeat_;
};

}  // namespace rdmacoro::detail::fabric

#include <rdmacoro/transport/ofi/message_path.hpp>

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/engine.ipp>
#include <rdmacoro/transport/ofi/impl/exchange.ipp>
#include <rdmacoro/transport/ofi/impl/matched.ipp>
#include <rdmacoro/transport/ofi/impl/matched_open.ipp>
#include <rdmacoro/transport/ofi/impl/one_sided.ipp>
#include <rdmacoro/transport/ofi/impl/session.ipp>
#endif
