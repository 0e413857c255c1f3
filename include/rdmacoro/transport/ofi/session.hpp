// session: one connection of a libfabric domain, from its opening to its end. A link and a connection refer to it.
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
#include <rdmacoro/transport/ofi/address.hpp>
#include <rdmacoro/transport/ofi/frame.hpp>
#include <rdmacoro/transport/ofi/patience.hpp>
#include <rdmacoro/transport/ofi/slots.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rdmacoro::detail::fabric {

class engine;
class session;
class matched_side;

/// How opening a connection ended: the code, the system's number or 0, the step that failed, and the verdict of the side that
/// refused.
struct opening_outcome {
    errc code = errc::ok;
    int system = 0;
    const char* step = "";
    verdict answer = verdict::welcome;
};

using opener = connection_opener<session, opening_outcome>;

/// A get, put or atomic that is under way.
struct transfer : operation, transfer_base, list_node<transfer> {
    /// `give` and `take` are the peer's get and put, served by this side.
    enum class way : std::uint8_t { get, put, fetch_add, compare_swap, give, take };

    /// Which of its link's lists it is in.
    enum class stage : std::uint8_t { idle, moving, asking, asked, answering, finished };

    transfer() noexcept : operation(kind::transfer) {}

    session* owner = nullptr;
    way moves = way::get;
    bool served = false;     // the peer moves the data
    bool out = false;        // a piece is with the provider
    bool withdrawn = false;  // the peer was asked to go no further
    stage at = stage::idle;
    std::uint32_t number = 0;  // of a get or put that is served
    std::uint64_t key = 0;
    std::uint64_t region_key = 0;  // of a give or take: this side's region
    void* descriptor = nullptr;
    std::uint64_t moved = 0;  // bytes, from the front
    std::uint64_t piece = 0;  // bytes of the piece that is out
    slot* bounce = nullptr;   // takes a piece that is not aligned
    std::uint64_t skip = 0;   // bytes before the piece that were got for alignment
    page_cache::lease lease;
    unique_registration exact;  // of memory that the peer reaches until it has answered

    [[nodiscard]] bool is_put() const noexcept { return moves == way::put; }
    [[nodiscard]] bool is_atomic() const noexcept {
        return moves == way::fetch_add || moves == way::compare_swap;
    }
    /// Whether this side's provider reads the peer's memory.
    [[nodiscard]] bool reads() const noexcept { return moves == way::get || moves == way::take; }
};

struct work_tag;
struct serving_tag;
struct stalled_tag;
struct matched_tag;

/// A connection's state machine.
///
///   opening -> ready -> draining -> (destroyed)
///
/// *Ready* is the only state with a link or a connection that owns it. *Draining*: closed by its owner, but the peer has yet to
/// see the last frame. A failure of a ready session is only noted at first: frames that arrived before it are delivered, then
/// the link goes down.
///
/// Belongs to its engine, which destroys it at the end.
class session final : public list_node<connection_tag>,
                      public list_node<leaving_tag>,
                      public list_node<work_tag>,
                      public list_node<stalled_tag>,
                      public list_node<matched_tag>,
                      public list_node<pending_tag>,
                      public list_node<serving_tag>,
                      private fd_handler,
                      private region_owner {
public:
    enum class phase : std::uint8_t { opening, ready, draining };

    /// Credits that messages leave to control frames, which leave the last one to the last frame, and to a frame that returns credits.
    ///
    /// No state of the credits stands still while both sides poll, whether or not users take their messages:
    ///  1. Control frames are consumed at once. So of four credits those that a side does not have are owed to it, or under way.
    ///  2. A side that is down to its last one, or to none, with nothing under way, is owed two or more, and its peer, which sees that
    ///     (`peer_is_short`), returns them as long as it has a credit itself.
    ///  3. Not both are without one: the last credit goes out with a frame that returns others, so the other side has some when that
    ///     arrives; and if the other side's last frame crosses it, that returns some, too.
    ///  4. A side that closes returns no more. Where it has no credit for its last frame, its last credit has returned others: the peer
    ///     still has these and returns what it owes for one of them, or has done so with the frame that it has sent for another.
    ///  5. Where users take messages, either side that has four or less is owed half of its credits or more, which are returned.
    static constexpr std::uint32_t reserved_credits = 4;
    static constexpr std::size_t most_staged = 32;  // slots of this link that are being sent

    session(engine& of, std::uint64_t number);
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session();

    // ---- interface of a link; see session_link

    using atomics = transfer::way;

    inline post_result post(const message_header& header, const const_buffers& payload) noexcept;
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept;
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept;
    post_result atomic(transfer::way what, const remote_region& there, std::uint64_t first,
                       std::uint64_t second, std::uint64_t& result, completion& c) noexcept;
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept;
    void revoke(completion& c) noexcept;
    inline unsigned poll(unsigned budget) noexcept;
    lent_buffer keep() noexcept;
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return capabilities_; }
    [[nodiscard]] const ofi_counts& counts() const noexcept { return counts_; }
    [[nodiscard]] std::string peer_name() const;
    /// By `host_hash`.
    [[nodiscard]] std::uint8_t peer_host() const noexcept;
    /// Messages that may be sent before the peer returns credits.
    [[nodiscard]] std::uint32_t credits() const noexcept { return window_.credits(); }

    /// Its messages are matched by the provider from now on.
    void begin_matching() noexcept;
    [[nodiscard]] const matching_traits& matching() noexcept;
    /// Nullptr: matching could not begin, and the link is going down.
    [[nodiscard]] matched_side* matched() noexcept;

    /// Delivers to `listener` from now on.
    inline void attach(session_listener& listener) noexcept;
    /// Ends everything posted with `reason`, notifies the listener, and releases the connection.
    void close(std::error_code reason) noexcept;
    /// Called by the owner on release; closes without notifying the listener.
    void abandon() noexcept;

    // ---- opening; see impl/exchange.ipp

    void connect(const inet_endpoint& to, opener& waiter) noexcept;
    void accept(int fd, opener& waiter) noexcept;
    [[nodiscard]] bool take_connect_info() noexcept;
    void exchanged(std::byte answer) noexcept;
    void exchange_failed(const exchange_failure& how) noexcept;
    /// An accepted client holds slots from now on, and has not finished connecting.
    void pending_begins(time_point now) noexcept {
        pending_ = true;
        pending_since_ = now;
    }
    /// There is room now for an accepted client, which has sent its connect_info.
    void pending_admitted() noexcept;
    /// An accepted client has not gone on with connecting, and others wait.
    void pending_expired() noexcept { fail_opening({errc::timed_out, 0, "open"}); }
    [[nodiscard]] time_point pending_since() const noexcept { return pending_since_; }

    // ---- called by the engine and by the parts of this session

    inline unsigned serve(unsigned budget) noexcept;
    inline void arrived(slot& s, const frame& f) noexcept;
    inline void recycle(slot& s) noexcept;
    inline void consumed(slot& s) noexcept;
    void give_back(transfer& t) noexcept;
    /// The provider is done with a piece; `error` as in an error entry, or 0.
    void piece_over(transfer& t, int error) noexcept;
    /// The provider may have room again.
    void pump() noexcept;
    inline void slot_sent(int error) noexcept;
    /// The provider has done with a slot of this link. False: the link has given its room back already, but for such slots.
    [[nodiscard]] bool slot_back() noexcept {
        --staged_;
        return !released_;
    }
    void fail(errc why) noexcept;
    /// Frames that were injected may be lost: sends one more, with a completion.
    void doubt() noexcept;
    /// A part of the time after which a silent host is dead has passed: a link that sent nothing since the last call sends a frame: the
    /// provider reports when that fails. False: the link is not open.
    bool beat() noexcept;
    /// The endpoint is closed: nothing that was posted is with the provider any more.
    void endpoint_gone() noexcept;
    /// Ends transfers for the peer in the region with this key: at once, or when the piece that the provider has is over.
    void refuse(std::uint64_t region_key) noexcept;
    /// Whether the provider may still touch memory of the region with this key.
    [[nodiscard]] bool touches(std::uint64_t region_key) noexcept;
    /// Whether the provider is reading the peer's memory.
    [[nodiscard]] bool gets() noexcept;
    /// Goes on with leaving. True: it can be destroyed.
    [[nodiscard]] bool leave_step(bool in_a_hurry) noexcept;

    [[nodiscard]] bool owned() const noexcept { return owned_; }
    /// Whether transfers and messages can still begin.
    [[nodiscard]] bool is_up() const noexcept { return phase_ == phase::ready && !failure_; }
    [[nodiscard]] phase now() const noexcept { return phase_; }
    [[nodiscard]] engine& of() const noexcept { return engine_; }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
    [[nodiscard]] std::uint32_t place() const noexcept { return place_of(number_); }

private:
    friend class engine;
    friend class matched_side;

    // Sending: message_path.hpp.
    enum class sent : std::uint8_t { yes, busy, failed };
    enum wants : std::uint8_t { probe = 1, credits_for_the_short = 2 };
    [[nodiscard]] inline sent send_bytes(const std::byte* from, std::size_t bytes) noexcept;
    [[nodiscard]] inline sent send_slot(slot& s, std::size_t bytes) noexcept;
    inline void store_word(frame_kind kind, std::byte* to) noexcept;
    inline void sent_one() noexcept;
    inline sent judge(long answer) noexcept;
    post_result no_room() noexcept;
    [[nodiscard]] inline bool can_write() const noexcept;
    [[nodiscard]] inline bool can_send_control() const noexcept;
    [[nodiscard]] inline bool can_return_credits() const noexcept;
    [[nodiscard]] inline bool is_heard() const noexcept;
    [[nodiscard]] inline bool can_answer() const noexcept;
    [[nodiscard]] bool send_control(frame_kind kind, std::span<const std::byte> rest = {}) noexcept;
    void send_owed_control() noexcept;
    void send_wanted() noexcept;
    void send_probe() noexcept;
    inline void mark_work() noexcept;
    void stall() noexcept;

    // Gets, puts, atomics: impl/one_sided.ipp.
    [[nodiscard]] transfer* take_transfer() noexcept;
    [[nodiscard]] transfer* take_transfer(transfer::way what, const remote_region& there,
                                          completion& c) noexcept;
    [[nodiscard]] post_result no_transfer() noexcept;
    post_result begin(transfer& t) noexcept;
    [[nodiscard]] bool lease_local(transfer& t) noexcept;
    void end_early(transfer& t, errc code) noexcept;
    void stop(transfer& t, errc code) noexcept;
    void post_piece(transfer& t) noexcept;
    [[nodiscard]] long post_get_piece(transfer& t) noexcept;
    [[nodiscard]] long post_put_piece(transfer& t) noexcept;
    [[nodiscard]] long post_atomic(transfer& t) noexcept;
    void finish(transfer& t) noexcept;
    void ask_peer() noexcept;
    void asked(const frame& f, const std::byte* request) noexcept;
    void answered(const std::byte* answer) noexcept;
    void send_answers() noexcept;
    void answer_while_waiting() noexcept;
    void complete_all(std::error_code reason) noexcept;
    void end_own_transfers() noexcept;
    void withdraw(transfer& t) noexcept;
    void withdraw_asked() noexcept;
    /// The peer gave up a get or put that this side serves.
    void withdrawn(std::uint32_t number) noexcept;
    [[nodiscard]] bool moving() const noexcept;
    /// Whether a transfer that the peer was asked for can still happen.
    /// One that has sent `bye` has ended its transfers.
    [[nodiscard]] bool peer_may_move() const noexcept {
        return !peer_hung_up_ && !got_bye_ && to_ != FI_ADDR_UNSPEC;
    }

    // Receiving, closing: impl/session.ipp.
    void take_control(const frame& f, slot& s) noexcept;
    void arrived_too_late(const frame& f) noexcept;
    void arrived_early(slot& s, const frame& f, std::uint32_t ahead) noexcept;
    void take_early() noexcept;
    inline void accept_frame(slot& s, const frame& f) noexcept;
    void drop_inbound() noexcept;
    void cancel_pieces() noexcept;
    [[nodiscard]] bool settled() noexcept;
    [[nodiscard]] bool lingers() noexcept;
    void quiesce(bool gracefully) noexcept;
    void end_reads() noexcept;
    void let_go(bool gracefully) noexcept;
    void send_bye() noexcept;
    void take_tagged(frame_kind kind, std::span<const std::byte> rest) noexcept;
    void timer_expired() noexcept;

    RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;

    // Opening: impl/exchange.ipp.
    void fail_opening(const opening_outcome& how) noexcept;
    void become_ready() noexcept;
    void greet() noexcept;
    [[nodiscard]] verdict hold_resources() noexcept;
    [[nodiscard]] connect_info own_connect_info() const noexcept;
    [[nodiscard]] verdict judge_peer(const connect_info& theirs) noexcept;
    [[nodiscard]] verdict take_peer(const connect_info& theirs) noexcept;
    void no_longer_pending() noexcept;
    void set_capabilities(std::size_t peer_slot_bytes) noexcept;
    void open_by(int fd, opener& waiter) noexcept;
    void on_socket() noexcept;

    engine& engine_;
    std::uint64_t number_;           // the peer's name for this link
    std::uint64_t peer_number_ = 0;  // this side's name for the peer's link
    fi_addr_t to_ = FI_ADDR_UNSPEC;
    phase phase_ = phase::opening;
    rdmacoro::capabilities capabilities_{};
    ofi_counts counts_{};
    inet_endpoint peer_;
    receive_window window_;

    // Sending.
    std::uint32_t frames_out_ = 0;
    std::size_t staged_ = 0;  // slots of this link that are being sent
    bool want_writable_ = false;
    bool busy_ = false;         // the provider had no room
    std::uint8_t wanted_ = 0;   // frames of `wants`
    std::uint32_t proven_ = 0;  // frames that were sent when the last probe was
    std::uint32_t beaten_ = 0;  // frames that were sent at the last beat
    std::uint32_t given_ = 0;   // credits of the peer

    // Receiving.
    inbox<slot, frame_word_bytes> inbox_;
    slot_queue early_;  // reported before frames that were sent before them
    std::uint32_t frames_in_ = 0;

    // Gets, puts, atomics.
    intrusive_list<transfer> asking_;     // the peer has not been asked yet
    intrusive_list<transfer> asked_;      // the peer moves them
    intrusive_list<transfer> answers_;    // the peer is to be notified of how they ended
    transfer_lists<transfer> transfers_;  // moving: pieces are posted, or wait for room
    std::uint32_t next_number_ = 0;
    std::uint32_t asked_count_ = 0;
    std::uint32_t serving_ = 0;  // gives and takes that are not answered
    unsigned exposed_ = 0;       // regions that the peer may write to
    /// Those that it may read from, and no more.
    struct readable_regions final : region_owner {
        explicit readable_regions(session& in) noexcept : of(in) {}
        RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;
        session& of;
        unsigned count = 0;
    } readable_{*this};
    unsigned out_ = 0;  // pieces with the provider

    // Messages that the provider matches: matched.hpp.
    std::unique_ptr<matched_side> matched_;
    std::vector<std::byte> tagged_peer_;  // its address, if that arrived before this side began to match

    // Opening and closing.
    opener* opener_ = nullptr;
    link_timer timer_;
    awaited_event awaited_;
    exchange_socket<connect_info::wire_bytes> socket_;
    bool owned_ = true;             // a link, a connection or an opener refers to it
    bool holds_resources_ = false;  // slots
    bool released_ = false;         // which it had, and has given back
    bool accepts_ = false;          // the other side connects, and greets first
    bool pending_ = false;          // an accepted client that has not finished connecting
    time_point pending_since_{};
    bool introduced_ = false;  // the connect_info are exchanged
    bool got_hello_ = false;
    bool sent_hello_ = false;
    bool peer_hung_up_ = false;
    bool got_bye_ = false;
    bool sent_bye_ = false;
    bool late_ = false;     // leaving takes too long
    bool severed_ = false;  // the provider's connection to the peer has ended: it reaches no memory any more
    patience patience_;     // with transfers, after a failure
    patience::clock::time_point asked_at_{};  // when the provider was last asked whether it has
    link_failure failure_;
};

}  // namespace rdmacoro::detail::fabric
