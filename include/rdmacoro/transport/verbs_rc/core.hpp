// One connection of a verbs domain, from its first step to its last: what a link and a connection hold.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/core_link.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>
#include <rdmacoro/transport/verbs_rc/events.hpp>
#include <rdmacoro/transport/verbs_rc/frame.hpp>
#include <rdmacoro/transport/verbs_rc/memory.hpp>
#include <rdmacoro/transport/verbs_rc/slots.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rdmacoro::detail::verbs {

class engine;
class core;

// Retries of what is not acknowledged, after 4 us * 2^14 each: half a second until a peer is given up. On rxe, which counts the
// losses of a whole work request and not those in a row, it means for ever: there `core::watch_silence` gives up.
inline constexpr std::uint8_t acknowledge_timeout = 14;
inline constexpr std::uint8_t acknowledge_retries = 7;
inline constexpr std::uint8_t receive_retries = 7;  // for ever: slots are there, by credits

/// A link that has found no room for so long asks the device for the queue pair's state.
inline constexpr duration patience_with_silence = std::chrono::milliseconds(500);

/// How opening a connection ended: where it failed, and what the system said.
struct opening_outcome {
    errc code = errc::ok;
    int system = 0;
    const char* step = "";
};

using opener = connection_opener<core, opening_outcome>;

/// A get, put or atomic that is under way.
struct transfer : list_node<transfer> {
    enum class kind : std::uint8_t { get, put, fetch_add, compare_swap };

    completion* done = nullptr;
    kind what = kind::get;
    bool begun = false;    // its first work request is posted
    bool partial = false;  // not all of it is posted; counted by its link
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t lkey = 0;
    std::byte* local = nullptr;
    std::uint64_t length = 0;
    std::uint64_t posted = 0;     // bytes, from the front
    unsigned pieces_out = 0;      // work requests that are not completed
    std::uint64_t flush = 0;      // the flush that must be answered; 0: none
    std::uint64_t operands[2]{};  // of an atomic
    std::uint64_t* result = nullptr;
    result_cell* cell = nullptr;  // where the device writes an atomic's result
    status code{};
    page_cache::lease lease;
};

struct all_tag;
struct dirty_tag;
struct work_tag;
struct leaving_tag;

/// A connection's state machine.
///
///   opening -> ready -> draining -> leaving -> (destroyed)
///
/// *Ready* is the only state with a link or a connection that owns it. *Draining*: closed by its owner, but the device has
/// yet to deliver what was sent; *leaving*: the queue pair is in its error state, and the device has yet to say that it is
/// done with it. A failure while it is ready is only noted: what came before is handed up first, then the link goes down.
///
/// Belongs to its engine, which destroys it at the end.
class core final : public list_node<all_tag>,
                   public list_node<dirty_tag>,
                   public list_node<work_tag>,
                   public list_node<leaving_tag>,
                   public cm_party,
                   private timer_node,
                   private fd_handler {
public:
    enum class phase : std::uint8_t { opening, ready, draining, leaving };

    /// Credits that messages leave to control frames: one each of those that can be under way, and one to spare.
    static constexpr std::uint32_t reserved_credits = 4;
    static constexpr unsigned most_chained = 16;
    static constexpr unsigned doorbells_of_a_turn = 4;  // messages of a turn with a doorbell each
    static constexpr std::size_t most_staged = 32;      // slots of this link that are being sent

    inline core(engine& of, std::uint32_t index, std::uint32_t generation);
    core(const core&) = delete;
    core& operator=(const core&) = delete;
    inline ~core();

    // ---- what a link does; see core_link

    using atomics = transfer::kind;

    inline post_result post(const message_header& header, const const_buffers& payload) noexcept;
    inline post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept;
    inline post_result put(std::span<const std::byte> from, const remote_region& there,
                           completion& c) noexcept;
    inline post_result atomic(transfer::kind what, const remote_region& there, std::uint64_t first,
                              std::uint64_t second, std::uint64_t& result, completion& c) noexcept;
    inline void revoke(completion& c) noexcept;
    inline unsigned poll(unsigned budget) noexcept;
    inline lent_buffer keep() noexcept;
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return capabilities_; }
    [[nodiscard]] const verbs_counts& counts() const noexcept { return counts_; }
    [[nodiscard]] std::string peer_name() const {
        return peer_.bytes != 0 ? peer_.url("verbs") : std::string("a closed connection");
    }
    [[nodiscard]] ibv_qp* queue_pair() const noexcept { return queue_pair_.get(); }
    /// Messages that may be sent before the peer says that it has consumed earlier ones.
    [[nodiscard]] std::uint32_t credits() const noexcept { return credits_; }

    /// Somebody listens from now on.
    inline void attach(core_listener& up) noexcept;
    /// Ends everything posted with `reason`, tells who listens, and lets go of the connection.
    inline void close(std::error_code reason) noexcept;
    /// Who has it needs it no more: closes it, without telling, if it is open.
    inline void abandon() noexcept;

    // ---- how it opens; see cm.hpp and exchange.hpp

    inline void connect(const inet_endpoint& to, opener& who) noexcept;
    inline void accept_by_cm(const cm_news& request, opener& who) noexcept;
    inline void accept_by_socket(int fd, opener& who) noexcept;
    void forget_opener() noexcept { opener_ = nullptr; }

    // ---- what the engine does

    inline void flush() noexcept;
    inline unsigned serve(unsigned budget) noexcept;
    inline void arrived(slot& s, std::uint32_t bytes) noexcept;
    inline void sent(std::uint32_t sequence, ibv_wc_status outcome) noexcept;
    inline void fail(errc why) noexcept;
    /// The peer or the network has ended the connection.
    inline void peer_gone() noexcept;
    inline void cm_event(const cm_news& news) noexcept override;
    void last_receive_is_over() noexcept { last_receive_over_ = true; }
    /// Goes on with leaving. True: it can be destroyed.
    [[nodiscard]] inline bool leave_step(bool in_a_hurry) noexcept;

    [[nodiscard]] inline bool busy_leaving() const noexcept;
    [[nodiscard]] bool owned() const noexcept { return owned_; }
    [[nodiscard]] phase now() const noexcept { return phase_; }
    [[nodiscard]] engine& of() const noexcept { return engine_; }
    [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    core* next_of_bucket = nullptr;  // the engine's

private:
    friend class engine;

    /// A work request in the making; short messages lie in it until it is posted.
    struct entry {
        ibv_send_wr request;
        ibv_sge piece;
        std::byte* bytes;
    };
    /// What a posted work request holds.
    struct holding {
        slot* staged;
        transfer* moves;
    };

    // Sending: core_send.hpp.
    [[nodiscard]] bool room(std::uint64_t left) const noexcept {
        return posted_ + left < completed_ + ring_.size();
    }
    [[nodiscard]] inline std::uint64_t request_id(std::uint64_t sequence) const noexcept;
    inline entry& next_entry() noexcept;
    inline void chain(entry& e, unsigned flags, slot* staged, transfer* moves, bool signal) noexcept;
    inline void enqueue(entry& e, unsigned flags, slot* staged, bool signal) noexcept;
    inline std::uint16_t take_owed_credits() noexcept;
    inline post_result no_room() noexcept;
    [[nodiscard]] inline bool can_send_control() const noexcept;
    inline void send_control(frame_kind kind, bool signal = false) noexcept;
    inline void say_control() noexcept;
    [[nodiscard]] inline bool can_write() const noexcept;
    /// Gets, puts and atomics leave a quarter of the work requests to messages.
    [[nodiscard]] bool room_for_transfer() const noexcept { return room(ring_.size() / 4); }
    inline void release_unposted(std::uint64_t from) noexcept;
    inline void mark_dirty() noexcept;
    inline void mark_work() noexcept;

    // Gets, puts, atomics: one_sided.hpp.
    [[nodiscard]] inline transfer* take_transfer() noexcept;
    inline void give_back(transfer& t) noexcept;
    inline post_result begin(transfer& t, std::span<std::byte> memory, access_rights rights) noexcept;
    inline void post_pieces(transfer& t) noexcept;
    inline void pump() noexcept;
    inline void posted_whole(transfer& t) noexcept;
    inline void piece_over(transfer& t, ibv_wc_status outcome) noexcept;
    inline bool finish_if_over(transfer& t) noexcept;
    inline void flushed() noexcept;
    inline void complete_all(std::error_code reason) noexcept;

    // Receiving, closing: core_receive.hpp.
    inline void freed_credit() noexcept;
    inline void drop_inbound() noexcept;
    inline void quiesce() noexcept;
    inline void let_go(bool gracefully) noexcept;
    [[nodiscard]] inline bool drained() const noexcept;
    inline void start_leaving() noexcept;
    inline void arrived_too_late(slot& s, std::uint32_t bytes) noexcept;
    inline void post_last_request() noexcept;
    inline void destroy_queue_pair() noexcept;
    inline void no_longer_awaited() noexcept;
    inline void to_error_state() noexcept;
    inline void timer_expired() noexcept;
    inline void set_timer(duration after) noexcept;

    // Opening.
    inline void connect_by_cm(const inet_endpoint& to, opener& who) noexcept;
    inline void connect_by_socket(const inet_endpoint& to, opener& who) noexcept;
    [[nodiscard]] inline int create_queue_pair() noexcept;
    inline void fail_opening(errc code, int system, const char* step) noexcept;
    inline void become_ready() noexcept;
    [[nodiscard]] inline errc take_greeting(const std::byte* from, std::size_t bytes) noexcept;
    [[nodiscard]] inline int modify_by_cm(ibv_qp_state to) noexcept;
    inline void opening_event(const cm_news& news) noexcept;
    inline void watch_silence() noexcept;
    [[nodiscard]] inline bool send_cm_request() noexcept;
    inline void on_socket(std::uint32_t events) noexcept;
    inline void exchange_step() noexcept;
    [[nodiscard]] inline bool take_card() noexcept;
    [[nodiscard]] inline int connect_queue_pair(const struct exchange_card& peer) noexcept;

    engine& engine_;
    std::uint32_t index_;
    std::uint32_t generation_;
    std::uint32_t number_ = 0;  // of the queue pair
    phase phase_ = phase::opening;
    core_listener* up_ = nullptr;
    unique_queue_pair queue_pair_;
    rdmacoro::capabilities capabilities_{};
    verbs_counts counts_{};
    inet_endpoint peer_;

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
    std::uint32_t credits_ = 0;       // messages the peer has slots for
    std::uint32_t most_credits_ = 0;  // what it began with
    bool may_send_ = true;            // false: on iWARP the accepting side waits for the other's first word
    bool want_writable_ = false;

    // Receiving.
    slot_queue inbound_;
    slot* current_ = nullptr;  // being delivered
    bool kept_ = false;
    std::uint32_t granted_ = 0;  // messages that the peer may still send
    std::uint32_t owed_ = 0;     // credits to give back
    std::uint32_t freed_ = 0;    // to be owed once the engine has posted the slots
    std::uint64_t freed_in_ = 0;
    bool want_flushed_ = false;  // an answer is due
    bool want_hello_ = false;    // the first word is due

    // Gets, puts, atomics.
    intrusive_list<transfer> moving_;
    intrusive_list<transfer> finished_;
    intrusive_list<transfer> free_transfers_;
    std::vector<std::unique_ptr<transfer>> transfers_;
    unsigned transfer_requests_ = 0;  // work requests under way that touch users' memory
    unsigned partial_ = 0;            // transfers of which not all is posted
    unsigned partial_puts_ = 0;       // of them; messages may not overtake these
    std::uint64_t flushes_sent_ = 0;
    std::uint64_t flushes_answered_ = 0;
    bool want_flush_ = false;

    // Opening and closing.
    opener* opener_ = nullptr;
    rdma_cm_id* id_ = nullptr;
    int socket_ = -1;
    std::unique_ptr<struct exchange_state> exchange_;
    bool owned_ = true;             // a link, a connection or an opener refers to it
    bool holds_resources_ = false;  // slots and completion entries
    bool accepting_ = false;
    bool connected_ = false;  // as far as the connection manager goes
    bool cm_over_ = false;
    bool last_receive_over_ = false;
    bool in_error_ = false;  // the queue pair is, by us
    bool late_ = false;      // leaving takes too long
    bool awaited_ = false;
    status failure_{};
    status closing_{};  // why this side ends it
    std::uint64_t failed_dry_ = 0;

    // Whether the peer is still there, by what had moved when it was looked at last.
    std::uint64_t seen_completed_ = 0;
    std::uint64_t seen_received_ = 0;
    std::uint64_t asked_ = 0;  // the work request, counted from 1, that shows it; 0: none
    unsigned silent_ = 0;      // looks in a row at which nothing had moved
    std::uint64_t drained_at_ = 0;
};

}  // namespace rdmacoro::detail::verbs
