// session: one connection of a verbs domain, from its opening to its end. A link and a connection refer to it.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/connection_table.hpp>
#include <rdmacoro/transport/detail/exchange_socket.hpp>
#include <rdmacoro/transport/detail/inbox.hpp>
#include <rdmacoro/transport/detail/link_timer.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/detail/pending_clients.hpp>
#include <rdmacoro/transport/detail/receive_window.hpp>
#include <rdmacoro/transport/detail/session_link.hpp>
#include <rdmacoro/transport/detail/transfer_lists.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>
#include <rdmacoro/transport/verbs_rc/events.hpp>
#include <rdmacoro/transport/verbs_rc/frame.hpp>
#include <rdmacoro/transport/verbs_rc/memory.hpp>
#include <rdmacoro/transport/verbs_rc/queue_pair_info.hpp>
#include <rdmacoro/transport/verbs_rc/receive_queue.hpp>
#include <rdmacoro/transport/verbs_rc/slots.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rdmacoro::detail::verbs {

class engine;
class session;
struct bank;

// An unacknowledged packet is sent again seven times, each after `acknowledge_timeout`. rxe counts the losses of a whole work request
// and not those in a row, so it retries for ever, and over iWARP TCP does for minutes; there `session::watch_silence` gives up.
inline constexpr std::uint8_t acknowledge_retries = 7;
inline constexpr std::uint8_t receive_retries = 7;       // for ever: credits guarantee receive slots
inline constexpr std::uint8_t receive_retry_timer = 12;  // 0.64 ms; 0 would be 655 ms

/// A link that could not send for so long asks the device for the queue pair's state.
inline constexpr duration patience_with_silence = std::chrono::milliseconds(500);

/// A step of making a queue pair that failed: the system's number, and the step's name. No number: none has.
struct failed_step {
    int system = 0;
    const char* name = "";
};

/// The step that locks memory.
inline constexpr char registering[] = "register memory for one more link";

/// How opening a connection ended: the code, the system's number or 0, and the step that failed.
struct opening_outcome {
    errc code = errc::ok;
    int system = 0;
    const char* step = "";
};

using opener = connection_opener<session, opening_outcome>;

/// A get, put or atomic that is under way.
struct transfer : transfer_base, list_node<transfer> {
    enum class kind : std::uint8_t { get, put, fetch_add, compare_swap };

    kind what = kind::get;
    bool begun = false;  // its first work request is posted
    std::uint32_t rkey = 0;
    std::uint32_t lkey = 0;
    std::uint64_t posted = 0;     // bytes, from the front
    unsigned pieces_out = 0;      // work requests that are not completed
    std::uint64_t flush = 0;      // the flush that must be answered; 0: none
    result_cell* cell = nullptr;  // where the device writes an atomic's result
    page_cache::lease lease;

    [[nodiscard]] bool is_put() const noexcept { return what == kind::put; }
};

struct dirty_tag;
struct work_tag;

/// A connection's state machine.
///
///   opening -> ready -> draining -> leaving -> (destroyed)
///
/// *Ready* is the only state with a link or a connection that owns it. *Draining*: closed by its owner, but the device has
/// yet to deliver the last frames; *leaving*: the queue pair is in its error state, and the device has yet to finish with it. A
/// failure of a ready session is only noted at first: frames that arrived before it are delivered, then the link goes down.
///
/// Belongs to its engine, which destroys it at the end.
class session final : public list_node<connection_tag>,
                      public list_node<leaving_tag>,
                      public list_node<dirty_tag>,
                      public list_node<work_tag>,
                      public list_node<pending_tag>,
                      public cm_party,
                      private fd_handler,
                      private region_owner {
public:
    enum class phase : std::uint8_t { opening, ready, draining, leaving };

    /// Credits that messages leave to control frames: one for each that can be under way, and one to spare.
    static constexpr std::uint32_t reserved_credits = 4;
    static constexpr unsigned most_chained = 16;
    static constexpr unsigned doorbells_of_a_turn = 4;  // messages of a turn with a doorbell each
    static constexpr std::size_t most_staged = 32;      // slots of this link that are being sent

    session(engine& of, std::uint32_t place, std::uint32_t generation);
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session();

    // ---- interface of a link; see session_link

    using atomics = transfer::kind;

    inline post_result post(const message_header& header, const const_buffers& payload) noexcept;
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept;
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept;
    post_result atomic(transfer::kind what, const remote_region& there, std::uint64_t first,
                       std::uint64_t second, std::uint64_t& result, completion& c) noexcept;
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept;
    void revoke(completion& c) noexcept;
    inline unsigned poll(unsigned budget) noexcept;
    lent_buffer keep() noexcept;
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return capabilities_; }
    [[nodiscard]] const verbs_counts& counts() const noexcept { return counts_; }
    [[nodiscard]] std::string peer_name() const;
    /// By `host_hash`.
    [[nodiscard]] std::uint8_t peer_host() const noexcept;
    [[nodiscard]] ibv_qp* queue_pair() const noexcept { return queue_pair_.get(); }
    /// Messages that may be sent before the peer returns credits.
    [[nodiscard]] std::uint32_t credits() const noexcept { return window_.credits(); }

    /// Delivers to `listener` from now on.
    inline void attach(session_listener& listener) noexcept;
    /// Ends everything posted with `reason`, notifies the listener, and releases the connection.
    void close(std::error_code reason) noexcept;
    /// Called by the owner on release; closes without notifying the listener.
    void abandon() noexcept;

    // ---- opening; see impl/cm.ipp and impl/exchange.ipp

    void connect(const inet_endpoint& to, opener& waiter) noexcept;
    void accept_by_cm(const cm_news& request, opener& waiter) noexcept;
    void accept_by_socket(int fd, opener& waiter) noexcept;
    [[nodiscard]] bool take_connect_info() noexcept;
    void exchanged(std::byte answer) noexcept;
    void exchange_failed(const exchange_failure& how) noexcept;

    // ---- called by the engine and by the parts of this session

    inline void flush() noexcept;
    inline unsigned serve(unsigned budget) noexcept;
    inline void arrived(slot& s, std::uint32_t bytes) noexcept;
    inline void recycle(slot& s) noexcept;
    inline void consumed(slot& s) noexcept;
    inline void sent(std::uint32_t sequence, ibv_wc_status outcome) noexcept;
    void give_back(transfer& t) noexcept;
    void fail(errc why) noexcept;
    /// The peer or the network has ended the connection.
    void peer_gone() noexcept;
    void device_gone() noexcept;
    /// Of an accepted client, from now on among those that hold a queue pair and have not finished connecting.
    void pending_begins(time_point now) noexcept {
        pending_ = true;
        pending_since_ = now;
    }
    /// There is room now for the queue pair of an accepted client, which has sent its data.
    void pending_admitted() noexcept;
    /// An accepted client has not gone on with connecting, and others wait.
    void pending_expired() noexcept { fail_opening(errc::timed_out, 0, "open"); }
    [[nodiscard]] time_point pending_since() const noexcept { return pending_since_; }
    RDMACORO_DECL void cm_event(const cm_news& news) noexcept override;
    void last_receive_is_over() noexcept { last_receive_over_ = true; }
    void first_message_came() noexcept;
    /// Goes on with leaving. True: it can be destroyed.
    [[nodiscard]] bool leave_step(bool in_a_hurry) noexcept;
    /// Whether the device has yet to send or to finish something.
    [[nodiscard]] bool busy_leaving() const noexcept { return queue_pair_ != nullptr || cm_owes_event_; }

    [[nodiscard]] bool owned() const noexcept { return owned_; }
    [[nodiscard]] phase now() const noexcept { return phase_; }
    [[nodiscard]] engine& of() const noexcept { return engine_; }
    [[nodiscard]] std::uint32_t place() const noexcept { return place_; }
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    session* next_of_bucket = nullptr;  // the number table's

private:
    friend class engine;

    /// A work request in the making; short messages lie in it until it is posted.
    struct entry {
        ibv_send_wr request;
        ibv_sge piece;
        std::byte* bytes;
    };
    /// A posted work request's slot and transfer, if any.
    struct holding {
        slot* staged;
        transfer* moves;
        std::uint32_t bytes;  // of the transfer
    };
    /// A posted read. Its own completion alone shows that it is over, not that of a later work request.
    struct pending_read {
        std::uint64_t sequence;
        holding held;
    };

    // Sending: message_path.hpp.
    [[nodiscard]] bool room(std::uint64_t left) const noexcept {
        return posted_ + left < completed_ + ring_.size();
    }
    [[nodiscard]] inline std::uint64_t request_id(std::uint64_t sequence) const noexcept;
    inline entry& next_entry() noexcept;
    inline void chain(entry& e, unsigned flags, slot* staged, transfer* moves, bool signal) noexcept;
    inline void enqueue(entry& e, unsigned flags, slot* staged, bool signal) noexcept;
    inline std::uint16_t take_owed_credits() noexcept;
    post_result no_room() noexcept;
    [[nodiscard]] inline bool can_send_control() const noexcept;
    [[nodiscard]] bool send_control(frame_kind kind, bool signal = false) noexcept;
    inline void send_owed_control() noexcept;
    [[nodiscard]] inline bool can_write() const noexcept;
    /// Gets, puts and atomics leave a quarter of the work requests to messages.
    [[nodiscard]] bool room_for_transfer() const noexcept { return room(ring_.size() / 4); }
    void release_unposted(std::uint64_t from) noexcept;
    void post_failed(std::uint64_t first, const ibv_send_wr* refused) noexcept;
    void request_failed(ibv_wc_status outcome) noexcept;
    inline void mark_dirty() noexcept;
    inline void mark_work() noexcept;

    // Gets, puts, atomics: impl/one_sided.ipp.
    [[nodiscard]] transfer* take_transfer(transfer::kind what, const remote_region& there,
                                          completion& c) noexcept;
    /// The answer of a post that got no transfer.
    [[nodiscard]] post_result no_transfer() noexcept;
    post_result end_at_once(transfer& t, errc code) noexcept;
    post_result begin(transfer& t, std::span<std::byte> memory, access_rights rights) noexcept;
    void post_pieces(transfer& t) noexcept;
    void pump() noexcept;
    void piece_over(const holding& piece, ibv_wc_status outcome) noexcept;
    void awaits_own_completion() noexcept;
    void read_over(std::uint32_t sequence, ibv_wc_status outcome) noexcept;
    void reads_unposted(std::uint64_t from) noexcept;
    [[nodiscard]] bool room_for_piece() const noexcept;
    bool finish_if_over(transfer& t) noexcept;
    void flushed() noexcept;
    void complete_all(std::error_code reason) noexcept;

    // Receiving, closing: impl/session.ipp.
    inline void freed_credit() noexcept;
    void take_control(frame_kind kind) noexcept;
    void drop_inbound() noexcept;
    void quiesce() noexcept;
    void let_go(bool gracefully) noexcept;
    [[nodiscard]] bool drained() const noexcept;
    RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;
    [[nodiscard]] bool sends_over() const noexcept;
    [[nodiscard]] bool receives_over() const noexcept;
    void start_leaving() noexcept;
    void arrived_too_late(slot& s, std::uint32_t bytes) noexcept;
    void post_last_request() noexcept;
    void destroy_queue_pair() noexcept;
    void release_resources() noexcept;
    void to_error_state() noexcept;
    void timer_expired() noexcept;

    // Opening.
    void begin_opening(opener& waiter) noexcept;
    void connect_by_cm(const inet_endpoint& to, opener& waiter) noexcept;
    void connect_by_socket(const inet_endpoint& to, opener& waiter) noexcept;
    [[nodiscard]] failed_step create_queue_pair() noexcept;
    [[nodiscard]] int make_queue_pair() noexcept;
    [[nodiscard]] int replace_queue_pair() noexcept;
    [[nodiscard]] failed_step initialize_queue_pair(const port_state& now) noexcept;
    [[nodiscard]] bool prepare_queue_pair(const port_state& now) noexcept;
    void fail_opening(errc code, int system, const char* step) noexcept;
    void become_ready() noexcept;
    void no_longer_pending() noexcept;
    [[nodiscard]] bool make_queue_pair_for(const port_state& now) noexcept;
    [[nodiscard]] bool open_socket(int fd) noexcept;
    void watch_socket() noexcept;
    [[nodiscard]] port_state look_at_port(const ibv_gid* peer) noexcept;
    void store_own_info(const port_state& now) noexcept;
    [[nodiscard]] static std::uint32_t refusal_of(const failed_step& how) noexcept;
    void accept_request() noexcept;
    void refuse_request(errc code, const failed_step& how) noexcept;
    void fail_refused(std::uint32_t refusal) noexcept;
    [[nodiscard]] bool resolve_address() noexcept;
    void try_again() noexcept;
    [[nodiscard]] std::uint64_t taken() const noexcept;
    [[nodiscard]] std::uint64_t all_taken_at() const noexcept;
    [[nodiscard]] errc take_greeting(const std::byte* from, std::size_t bytes) noexcept;
    [[nodiscard]] int modify_by_cm(ibv_qp_state to) noexcept;
    void opening_event(const cm_news& news) noexcept;
    void watch_silence() noexcept;
    [[nodiscard]] bool send_cm_request() noexcept;
    void on_socket() noexcept;
    [[nodiscard]] bool looks_for(const ibv_gid& gid) noexcept;
    void peer_found(const cm_news& news) noexcept;
    [[nodiscard]] bool answer_connect_info() noexcept;
    [[nodiscard]] int connect_queue_pair(const queue_pair_info& peer, const port_state& now) noexcept;

    engine& engine_;
    std::uint32_t place_;  // in the engine's table
    std::uint32_t generation_;
    std::uint32_t number_ = 0;  // of the queue pair
    phase phase_ = phase::opening;
    unique_queue_pair queue_pair_;
    bank* bank_ = nullptr;               // with the completion queue of its queue pair
    receive_queue* receives_ = nullptr;  // that it receives from
    rdmacoro::capabilities capabilities_{};
    verbs_counts counts_{};
    inet_endpoint peer_;
    receive_window window_;

    // Sending.
    std::vector<holding> ring_;    // by sequence number, modulo its size: a power of two
    std::uint64_t posted_ = 0;     // work requests, those in the chain included
    std::uint64_t completed_ = 0;  // of them
    unsigned unsignalled_ = 0;     // since the last one that asks for a completion
    unsigned unsignalled_slots_ = 0;
    std::size_t staged_ = 0;       // slots in the ring
    std::uint64_t posted_in_ = 0;  // the engine's epoch of the last post
    unsigned posted_at_once_ = 0;  // in that epoch
    unsigned chained_ = 0;
    std::unique_ptr<entry[]> chain_;
    std::unique_ptr<std::byte[]> chain_bytes_;
    bool may_send_ = true;  // false: on iWARP, the accepting side becomes ready with the peer's first frame
    bool want_writable_ = false;

    // Receiving.
    inbox<slot, frame_word_bytes> inbox_;
    unsigned want_flushed_ = 0;  // answers that are due
    bool want_hello_ = false;    // the first frame is due

    // Gets, puts, atomics.
    transfer_lists<transfer> transfers_;
    unsigned transfer_requests_ = 0;    // work requests under way that touch users' memory
    std::uint64_t transfer_bytes_ = 0;  // of them
    std::vector<pending_read> reads_;   // over iWARP, oldest first
    std::uint64_t flushes_sent_ = 0;
    std::uint64_t flushes_answered_ = 0;
    bool want_flush_ = false;
    unsigned exposed_ = 0;  // regions that the peer may read or write

    // Opening and closing.
    opener* opener_ = nullptr;
    link_timer timer_;
    awaited_event awaited_;
    rdma_cm_id* id_ = nullptr;  // where the socket connects: by which the peer's address is looked for
    exchange_socket<queue_pair_info::wire_bytes> socket_;
    std::uint32_t first_sequence_ = 0;  // of this side's packets, where they connect by the socket
    std::uint8_t source_ = 0;           // the way in which the next attempt finds this side's address
    unsigned stale_ = 0;                // rejections that said that the queue pair is still in use
    // Of an accepted request, until it has its turn.
    std::uint8_t responder_resources_ = 0;
    std::uint8_t initiator_depth_ = 0;
    time_point pending_since_{};
    bool owned_ = true;             // a link, a connection or an opener refers to it
    bool holds_resources_ = false;  // slots and completion entries
    bool accepting_ = false;
    bool connected_ = false;  // as far as the connection manager goes
    bool cm_over_ = false;
    bool cm_owes_event_ =
        false;  // over iWARP: until it comes, identifier and queue pair cannot be destroyed without waiting for it
    bool could_receive_ = false;  // the queue pair has been ready to receive, also before `connected_`
    bool last_receive_over_ = false;
    bool in_error_ = false;  // the queue pair is, as this side knows
    bool late_ = false;      // leaving takes too long
    bool pending_ = false;   // an accepted client that has a queue pair and has not finished connecting
    std::uint64_t settled_ =
        0;  // when so much is `taken()` the queue pair can be destroyed; 0: the device is not done with it
    link_failure failure_;
    status closing_{};  // why this side ends it

    // Whether the peer is still there, by the progress since the last look.
    std::uint64_t seen_completed_ = 0;
    std::uint64_t seen_received_ = 0;
    std::uint64_t asked_ = 0;  // the work request, counted from 1, that shows it; 0: none
    unsigned silent_ = 0;      // looks in a row without progress
    std::uint64_t drained_at_ = 0;
};

}  // namespace rdmacoro::detail::verbs
