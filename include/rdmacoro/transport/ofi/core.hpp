// One connection of a libfabric domain, from its first step to its last: what a link and a connection hold.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/core_link.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>
#include <rdmacoro/transport/ofi/address.hpp>
#include <rdmacoro/transport/ofi/frame.hpp>
#include <rdmacoro/transport/ofi/slots.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rdmacoro::detail::fabric {

class engine;
class core;
class matched_side;

/// How opening a connection ended: where it failed, and what the system or the other side said.
struct opening_outcome {
    errc code = errc::ok;
    int system = 0;
    const char* step = "";
    verdict said = verdict::welcome;
};

using opener = connection_opener<core, opening_outcome>;

/// A get, put or atomic that is under way.
struct transfer : operation, list_node<transfer> {
    /// `give` and `take` are the peer's get and put, which this side serves.
    enum class way : std::uint8_t { get, put, fetch_add, compare_swap, give, take };

    /// Where it is: in which of its link's lists.
    enum class stage : std::uint8_t { idle, moving, asking, asked, answering, finished };

    transfer() noexcept : operation(kind::transfer) {}

    core* owner = nullptr;
    completion* done = nullptr;
    way moves = way::get;
    bool served = false;   // the peer moves the data
    bool partial = false;  // pieces are left to be posted; counted by its link
    bool out = false;      // a piece is with the provider
    stage at = stage::idle;
    std::uint32_t number = 0;  // of a get or put that is served
    std::uint64_t address = 0;
    std::uint64_t key = 0;
    std::uint64_t region_key = 0;  // of a give or take: this side's region
    void* descriptor = nullptr;
    std::byte* local = nullptr;
    std::uint64_t length = 0;
    std::uint64_t moved = 0;  // bytes, from the front
    std::uint64_t piece = 0;  // bytes of the piece that is out
    slot* bounce = nullptr;   // where a piece that is not aligned goes
    std::uint64_t skip = 0;   // bytes in front of it that were got for alignment's sake
    std::uint64_t operands[2]{};
    std::uint64_t* result = nullptr;  // of an atomic
    status code{};
    page_cache::lease lease;
    unique_registration exact;  // of memory that the peer reaches until it has answered
};

struct all_tag;
struct work_tag;
struct leaving_tag;
struct stalled_tag;
struct matched_tag;

/// A connection's state machine.
///
///   opening -> ready -> draining -> (destroyed)
///
/// *Ready* is the only state with a link or a connection that owns it. *Draining*: closed by its owner, but the peer has yet to
/// see the last frame. A failure while it is ready is only noted: what came before is handed up first, then the link goes
/// down.
///
/// Belongs to its engine, which destroys it at the end.
class core final : public list_node<all_tag>,
                   public list_node<work_tag>,
                   public list_node<leaving_tag>,
                   public list_node<stalled_tag>,
                   public list_node<matched_tag>,
                   private timer_node,
                   private fd_handler,
                   private region_owner {
public:
    enum class phase : std::uint8_t { opening, ready, draining };

    /// Credits that messages leave to control frames; the last is for the last frame.
    static constexpr std::uint32_t reserved_credits = 4;
    static constexpr std::size_t most_staged = 32;  // slots of this link that are being sent

    inline core(engine& of, std::uint64_t number);
    core(const core&) = delete;
    core& operator=(const core&) = delete;
    inline ~core();

    // ---- what a link does; see core_link

    using atomics = transfer::way;

    inline post_result post(const message_header& header, const const_buffers& payload) noexcept;
    inline post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept;
    inline post_result put(std::span<const std::byte> from, const remote_region& there,
                           completion& c) noexcept;
    inline post_result atomic(transfer::way what, const remote_region& there, std::uint64_t first,
                              std::uint64_t second, std::uint64_t& result, completion& c) noexcept;
    [[nodiscard]] inline region expose(std::span<std::byte> memory, access_rights rights) noexcept;
    inline void revoke(completion& c) noexcept;
    inline unsigned poll(unsigned budget) noexcept;
    inline lent_buffer keep() noexcept;
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return capabilities_; }
    [[nodiscard]] const ofi_counts& counts() const noexcept { return counts_; }
    [[nodiscard]] inline std::string peer_name() const;
    /// Messages that may be sent before the peer says that it has consumed earlier ones.
    [[nodiscard]] std::uint32_t credits() const noexcept { return credits_; }

    /// Its messages are matched by the provider from now on.
    inline void begin_matching() noexcept;
    [[nodiscard]] inline const matching_traits& matching() noexcept;
    /// Nullptr: it could not begin, and the link is going down.
    [[nodiscard]] inline matched_side* matched() noexcept;

    /// Somebody listens from now on.
    inline void attach(core_listener& up) noexcept;
    /// Ends everything posted with `reason`, tells who listens, and lets go of the connection.
    inline void close(std::error_code reason) noexcept;
    /// Who has it needs it no more: closes it, without telling, if it is open.
    inline void abandon() noexcept;

    // ---- how it opens; see exchange.hpp

    inline void connect(const inet_endpoint& to, opener& who) noexcept;
    inline void accept(int fd, opener& who) noexcept;

    // ---- what the engine does

    inline unsigned serve(unsigned budget) noexcept;
    inline void arrived(slot& s, const frame& f) noexcept;
    /// The provider is done with a piece; `error` as in an error entry, or 0.
    inline void piece_over(transfer& t, int error) noexcept;
    /// There may be room now.
    inline void pump() noexcept;
    inline void slot_sent(int error) noexcept;
    inline void fail(errc why) noexcept;
    /// The endpoint is gone: nothing that was posted is with the provider any more.
    inline void endpoint_gone() noexcept;
    /// Ends what was to be moved for the peer in the region with this key, and is not with the provider.
    inline void refuse(std::uint64_t region_key) noexcept;
    /// Whether the provider may still touch memory of the region with this key.
    [[nodiscard]] inline bool touches(std::uint64_t region_key) noexcept;
    /// Whether the provider is reading the peer's memory.
    [[nodiscard]] inline bool gets() noexcept;
    /// Goes on with leaving. True: it can be destroyed.
    [[nodiscard]] inline bool leave_step(bool in_a_hurry) noexcept;

    [[nodiscard]] bool owned() const noexcept { return owned_; }
    /// Whether it can still begin something.
    [[nodiscard]] bool is_up() const noexcept { return phase_ == phase::ready && !failure_; }
    [[nodiscard]] phase now() const noexcept { return phase_; }
    [[nodiscard]] engine& of() const noexcept { return engine_; }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

private:
    friend class engine;
    friend class matched_side;

    // Sending: core_send.hpp.
    enum class sent : std::uint8_t { yes, busy, failed };
    [[nodiscard]] inline sent send_bytes(const std::byte* from, std::size_t bytes) noexcept;
    [[nodiscard]] inline sent send_slot(slot& s, std::size_t bytes) noexcept;
    inline void store_word(frame_kind kind, std::byte* to) noexcept;
    inline void sent_one() noexcept;
    inline sent judge(long answer) noexcept;
    inline post_result no_room() noexcept;
    [[nodiscard]] inline bool can_write() const noexcept;
    [[nodiscard]] inline bool can_send_control() const noexcept;
    template <class Fill>
    [[nodiscard]] bool send_control(frame_kind kind, std::size_t bytes, Fill fill) noexcept;
    inline void say_control() noexcept;
    inline void mark_work() noexcept;
    inline void stall() noexcept;

    // Gets, puts, atomics: one_sided.hpp.
    [[nodiscard]] inline transfer* take_transfer() noexcept;
    inline void give_back(transfer& t) noexcept;
    inline post_result begin(transfer& t, completion& c) noexcept;
    [[nodiscard]] inline bool lease_local(transfer& t) noexcept;
    inline void end_early(transfer& t, errc code) noexcept;
    inline void post_piece(transfer& t) noexcept;
    [[nodiscard]] inline long post_get_piece(transfer& t) noexcept;
    inline void finish(transfer& t) noexcept;
    inline void posted_whole(transfer& t) noexcept;
    inline void ask_peer() noexcept;
    inline void asked(const frame& f, const std::byte* request) noexcept;
    inline void answered(const std::byte* answer) noexcept;
    inline void say_answers() noexcept;
    inline void complete_all(std::error_code reason) noexcept;
    [[nodiscard]] inline bool moving() const noexcept;
    /// Whether what the peer was asked for can still happen.
    [[nodiscard]] bool peer_may_move() const noexcept { return !peer_hung_up_ && to_ != FI_ADDR_UNSPEC; }

    // Receiving, closing: core_receive.hpp.
    inline void take_control(const frame& f, slot& s) noexcept;
    inline void arrived_too_late(const frame& f) noexcept;
    inline void arrived_early(slot& s, const frame& f, std::uint32_t ahead) noexcept;
    inline void take_early() noexcept;
    inline void accept_frame(slot& s, const frame& f) noexcept;
    inline void drop_inbound() noexcept;
    inline void quiesce() noexcept;
    inline void let_go(bool gracefully) noexcept;
    inline void say_bye() noexcept;
    inline void take_tagged(frame_kind kind, std::span<const std::byte> rest) noexcept;
    inline void hang_up() noexcept;
    inline void no_longer_awaited() noexcept;
    inline void timer_expired() noexcept;
    inline void set_timer(duration after) noexcept;

    inline void deregister(std::uint64_t key) noexcept override;

    // Opening: exchange.hpp.
    inline void fail_opening(const opening_outcome& how) noexcept;
    inline void become_ready() noexcept;
    inline void greet() noexcept;
    [[nodiscard]] inline card own_card() const noexcept;
    [[nodiscard]] inline verdict judge_card(const card& said) noexcept;
    inline void open_by(int fd, opener& who) noexcept;
    inline void on_socket(std::uint32_t events) noexcept;
    inline void exchange_step() noexcept;
    [[nodiscard]] inline bool take_card() noexcept;
    inline void exchanged() noexcept;

    engine& engine_;
    std::uint64_t number_;           // how the peer names this link
    std::uint64_t peer_number_ = 0;  // how this side names the peer's
    fi_addr_t to_ = FI_ADDR_UNSPEC;
    phase phase_ = phase::opening;
    core_listener* up_ = nullptr;
    rdmacoro::capabilities capabilities_{};
    ofi_counts counts_{};
    inet_endpoint peer_;

    // Sending.
    std::uint32_t frames_out_ = 0;
    std::uint32_t credits_ = 0;       // messages the peer takes
    std::uint32_t most_credits_ = 0;  // what it began with
    std::size_t staged_ = 0;          // slots of this link that are being sent
    bool want_writable_ = false;
    bool busy_ = false;  // the provider had no room

    // Receiving.
    slot_queue inbound_;
    slot_queue early_;         // reported before others that were sent before them
    slot* current_ = nullptr;  // being delivered
    bool kept_ = false;
    std::uint32_t frames_in_ = 0;
    std::uint32_t granted_ = 0;  // messages that the peer may still send
    std::uint32_t owed_ = 0;     // credits to give back

    // Gets, puts, atomics.
    intrusive_list<transfer> moving_;   // pieces are posted, or wait for room
    intrusive_list<transfer> asking_;   // the peer has not been asked yet
    intrusive_list<transfer> asked_;    // by number, the peer moves them
    intrusive_list<transfer> answers_;  // the peer has to hear how they went
    intrusive_list<transfer> finished_;
    intrusive_list<transfer> free_transfers_;
    std::vector<std::unique_ptr<transfer>> transfers_;
    std::uint32_t next_number_ = 0;
    std::uint32_t asked_count_ = 0;
    std::uint32_t serving_ = 0;  // gives and takes that are not answered
    unsigned exposed_ = 0;       // regions that the peer may write to
    unsigned out_ = 0;           // pieces with the provider
    unsigned partial_ = 0;       // transfers with pieces to post
    unsigned partial_puts_ = 0;  // of them; messages may not overtake these

    // Messages that the provider matches: matched.hpp.
    std::unique_ptr<matched_side> matched_;
    std::vector<std::byte> tagged_peer_;  // its address, if it came before this side began

    // Opening and closing.
    opener* opener_ = nullptr;
    int socket_ = -1;
    std::unique_ptr<struct exchange_state> exchange_;
    bool owned_ = true;             // a link, a connection or an opener refers to it
    bool holds_resources_ = false;  // slots
    bool awaited_ = false;
    bool accepts_ = false;     // the other side connects, and greets first
    bool introduced_ = false;  // the cards are exchanged
    bool got_hello_ = false;
    bool said_hello_ = false;
    bool peer_hung_up_ = false;
    bool got_bye_ = false;
    bool said_bye_ = false;
    bool late_ = false;  // leaving takes too long
    status failure_{};
    std::uint64_t failed_dry_ = 0;
};

}  // namespace rdmacoro::detail::fabric
