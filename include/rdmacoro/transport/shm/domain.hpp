// The shared-memory domain, one for each scheduler: its table of regions, its shared arena, and the
// descriptors it watches.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/detail/serve_in_turn.hpp>
#include <rdmacoro/transport/shm/arena.hpp>
#include <rdmacoro/transport/shm/copy_allowance.hpp>
#include <rdmacoro/transport/shm/mark_patience.hpp>
#include <rdmacoro/transport/shm/notice_board.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <sys/types.h>

namespace rdmacoro {

/// How a shared-memory domain behaves; the defaults suit all but tests.
struct shm_options {
    detail::shm::geometry shape{};  ///< of the links this side connects
    /// Address space for `shared_memory`: not 0, and 64 TiB at most. Pages are used as they are touched, also after
    /// `mlockall(MCL_FUTURE)`, though all of it counts for `RLIMIT_MEMLOCK` then; `mlockall(MCL_CURRENT)` takes them all.
    std::size_t arena_bytes = 1u << 30;
    std::size_t max_regions = 16384;                      ///< registered at once; 1 to 65,536
    duration handshake_limit = std::chrono::seconds(10);  ///< for a peer to send its hello; more than 0
    bool use_process_vm = true;  ///< false: as on a kernel that forbids process_vm_readv
    /// Where Yama's ptrace_scope is 1: a peer may open this process's memory as it connects, and trace the process in any way, until
    /// the next peer connects or its link ends. Set on both sides; without it gets and puts are served by the scheduler of the memory's
    /// owner. So may be those of peers that connect at a time, all but the last: the system keeps one such permission for a process.
    bool permit_ptrace = false;
    bool use_membarrier = true;  ///< false: as on a kernel without it
};

namespace detail::shm {

/// Called when a descriptor is ready. Lives with the descriptor's owner; unwatched before it is destroyed.
struct fd_handler {
    using function = void (*)(fd_handler& self, std::uint32_t events) noexcept;
    function ready = nullptr;
    int watched = -1;
    bool awaited = false;
};

struct toucher_tag;
struct touched_tag;
struct tidy_tag;
struct cooling_tag;

/// The functions of a link that its domain calls, and the link's place in the domain.
class pollable : public list_node<pollable>,
                 public list_node<toucher_tag>,
                 public list_node<touched_tag>,
                 public list_node<tidy_tag>,
                 public list_node<cooling_tag> {
public:
    virtual unsigned poll(unsigned budget) noexcept = 0;
    /// Tells the peer how to give notice; see `direction_words::notice`.
    virtual void want_notice(std::uint32_t word) noexcept = 0;
    /// Whether no record was read since the last call, none has come, and nothing else is under way.
    [[nodiscard]] virtual bool quiet() noexcept = 0;
    /// Gives the peer back all that was read.
    virtual void give_back() noexcept = 0;
    /// Whether a link that is not polled should be: the peer gave notice, whether that was seen or not, or something is under way.
    [[nodiscard]] virtual bool wants_poll() noexcept = 0;
    /// Tells the peer whether to announce touches; see `direction_words::touch_notice`.
    virtual void want_touch_notice(std::uint32_t word) noexcept = 0;
    /// Whether the peer says that it is touching the region with this key, 0: any region.
    [[nodiscard]] virtual bool touched(std::uint64_t key) noexcept = 0;
    /// Returns when the peer is not touching the region with this key, 0: any region, or when the wait is over. Then the
    /// link ends, and memory of the arena's that the peer may be touching, `range`, is held back.
    virtual void wait_until_untouched(std::uint64_t key, std::span<std::byte> range,
                                      mark_wait& wait) noexcept = 0;
    /// The peer may go on touching that region until `until`; then the same as above. Does not wait.
    virtual void await_untouched(std::uint64_t key, std::span<std::byte> range,
                                 time_point until) noexcept = 0;
    /// Whether that is not over yet.
    [[nodiscard]] virtual bool awaits_untouched(time_point now) noexcept = 0;
    /// Whether this side has used memory of the segment that it could return to the system, not what the peer was found to keep, or keeps
    /// memory of gets and puts that are over.
    [[nodiscard]] virtual bool holds_memory() noexcept = 0;
    /// Returns that memory to the system, unless some was used since the last call. True: some was, or some is left, and it is to be
    /// called again.
    virtual bool return_memory() noexcept = 0;

    /// 1 and up within the domain; `notice_board::most_links + 1`: it has none.
    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    /// Of all links that the domain ever had, from 1; 0: not added yet.
    [[nodiscard]] std::uint32_t serial() const noexcept { return serial_; }

protected:
    ~pollable() { leave_lists(); }

private:
    friend class domain_base;
    void leave_lists() noexcept {
        list_node<pollable>::unlink();
        list_node<toucher_tag>::unlink();
        list_node<touched_tag>::unlink();
        list_node<tidy_tag>::unlink();
        list_node<cooling_tag>::unlink();
    }
    std::uint32_t number_ = notice_board::most_links + 1;
    std::uint32_t serial_ = 0;
    bool hot_ = true;
};

/// Whether a peer's doorbell may be looked at without a fence; see `doorbell_order`.
RDMACORO_DECL bool register_membarrier() noexcept;

/// The resources that all links of one scheduler share.
///
/// Links are *hot* or *cold*. Each turn polls the hot ones. A link that was quiet for about a millisecond becomes cold: from
/// then on its peer marks it on the notice board, and a mark with a cause, an operation of this side that has to wait, or the end of its
/// socket makes it hot again. The last hot link stays hot. So a turn costs nothing for an idle link, and a single link is
/// always polled. As all peers can write the board, one could clear another's marks: a few cold links are looked at by the
/// clock, and all of them after a doorbell for news that has no mark.
///
/// A link that sends, gets or puts does not tell the domain, so that this costs nothing. The domain finds the memory that a link
/// holds by that when the link becomes cold, and later when it looks at cold links. While it sleeps it does not look: it wakes up once, a second
/// after coroutines ran, and looks at all of them. Memory is returned after a second in which nothing was sent. What the peer keeps then, lent messages or what it has
/// not read, wakes no scheduler again: it is found at a later look, or when the link is polled as the peer has given something back.
///
/// A peer that touches memory sets a mark in its link's segment. The domain looks at the marks of links over which memory was
/// touched since it closed memory last; the peers of all others announce a touch on the board of touches. So the end of a
/// region costs nothing for the links that touch nothing.
class domain_base : public progress_source, public region_owner {
public:
    domain_base(scheduler& owner, const shm_options& options);
    domain_base(const domain_base&) = delete;
    domain_base& operator=(const domain_base&) = delete;
    RDMACORO_DECL ~domain_base();

    [[nodiscard]] scheduler& owner() noexcept { return owner_; }
    [[nodiscard]] const shm_options& options() const noexcept { return options_; }
    [[nodiscard]] int table_file() const noexcept { return table_file_.get(); }
    [[nodiscard]] bool uses_membarrier() const noexcept { return membarrier_; }
    [[nodiscard]] arena& shared_arena() noexcept { return arena_; }
    [[nodiscard]] region_table& regions() noexcept { return regions_; }
    /// Whether the calling process made this domain. A child that fork made has a copy: the descriptors and the table of
    /// regions are its parent's, and so is the memory that peers reach.
    [[nodiscard]] bool own_process() const noexcept;

    /// Makes memory reachable for every peer of this domain. Throws `errc::no_resources` when the table is full.
    [[nodiscard]] region register_memory(std::span<std::byte> memory,
                                         access_rights rights = access_rights::all);

    /// The same for the elements of a vector, array or span of another trivially copyable type.
    template <detail::other_range_to_write Range>
    [[nodiscard]] region register_memory(Range&& elements, access_rights rights = access_rights::all) {
        return register_memory(detail::range_bytes(elements), rights);
    }

    /// As above; empty instead of throwing.
    [[nodiscard]] region try_register(std::span<std::byte> memory, access_rights rights) noexcept;

    /// Memory that peers can reach with a plain copy, without the kernel, once it is registered. Every peer maps all of it:
    /// the rights of its regions bind peers that keep to them. Throws `errc::no_resources`.
    [[nodiscard]] shared_memory allocate_shared(std::size_t bytes) { return arena_.allocate(bytes); }

    RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;

    /// For a wait for the marks of peers.
    [[nodiscard]] mark_wait wait_for_marks() noexcept { return mark_wait(patience_); }

    /// Polls it from now on, until `remove_link`.
    void add_link(pollable& link) noexcept;
    void remove_link(pollable& link) noexcept;
    /// Polls it each turn until it is quiet; for a link that waits for more than a record.
    void heat(pollable& link) noexcept {
        if (!link.hot_) reheat(link);
    }
    /// The peer of this link has rung.
    void rung(pollable& link) noexcept;
    /// Looks at some of the hot links. Those that were quiet since the last look become cold, all but one of the domain. True: this round
    /// has not looked at all hot links yet.
    bool cool() noexcept;
    /// The links that are polled each turn.
    [[nodiscard]] std::size_t hot_links() const noexcept { return links_count_ - cold_count_; }

    [[nodiscard]] std::size_t cold_links() const noexcept { return cold_count_; }

    /// As `try_register`, for memory that only the peer of this link is told of, and that no other is served. Its end does not wait,
    /// as it lies on the way of messages: when the peer is touching the memory, the link is told to look (`await_untouched`).
    [[nodiscard]] region register_for(const pollable& link, std::span<std::byte> memory,
                                      access_rights rights) noexcept;

    /// Whether the peer of the link with this serial number may be served such an access.
    [[nodiscard]] errc check_served(std::uint32_t serial, const remote_region& there,
                                    access_rights wanted) const noexcept;

    /// For transfers, long messages, and gets and puts that are served.
    [[nodiscard]] copy_allowance& copies() noexcept { return copies_; }
    /// A message, or a piece of a get or put that is served: to the ring or from it.
    void message_copied(std::size_t bytes) noexcept {
        copies_.copied(bytes);
        if (copies_.used_up()) polls_to_clock_ = 1;  // the next poll renews them
    }
    /// Transfers of this link, or a long message, wait until the next poll. The first link of which none was copied in this one has its turn then first.
    void copies_wait(pollable& link, bool copied_some) noexcept {
        if (next_to_copy_ == nullptr && !copied_some) next_to_copy_ = &link;
        polls_to_clock_ = 1;
    }

    /// Calls `handler.ready` when `fd` has one of `events`; level-triggered. `awaited`: an operation waits for it, so it is polled more often.
    /// Throws.
    void watch(fd_handler& handler, int fd, std::uint32_t events, bool awaited = false);
    void unwatch(fd_handler& handler) noexcept;

    RDMACORO_DECL bool poll() noexcept override;

    int wake_fd() noexcept override { return epoll_.get(); }

    RDMACORO_DECL void arm() noexcept override;
    RDMACORO_DECL void disarm() noexcept override;

private:
    static constexpr std::size_t most_due = 16;
    static constexpr unsigned looks_in_a_poll = 4;
    static constexpr unsigned most_between_clocks = 32;  // polls, while they are short
    static constexpr std::size_t links_in_a_sweep = 16;
    static constexpr std::size_t links_in_a_cooling = 64;
    static constexpr duration between_touch_looks = std::chrono::microseconds(100);
    static constexpr duration between_tidyings = std::chrono::seconds(1);
    static constexpr duration soon = std::chrono::milliseconds(1);
    static constexpr std::size_t links_in_a_tidying = 16;

    struct own_timer : timer_node {
        domain_base* self = nullptr;
    };
    /// A descriptor that was found ready. The handler's may have been unwatched since: nullptr.
    struct due {
        fd_handler* handler = nullptr;
        std::uint32_t events = 0;
    };
    /// The only peer that was told a key.
    struct told {
        std::uint32_t number = 0;
        std::uint32_t serial = 0;  // 0: there may be others
    };

    /// The work that depends on time: a look at the descriptors, links that cool down, copies that go on. `handed_up`: this poll has
    /// handed up messages.
    bool by_the_clock(bool handed_up) noexcept;
    bool look_at_descriptors() noexcept;
    void look_soon() noexcept {
        look_now_ = true;
        polls_to_clock_ = 1;
    }

    void reheat(pollable& link) noexcept;
    bool take_notices(unsigned& left) noexcept;
    /// Heats those of the next cold links that are not quiet, and notes the memory of the others.
    bool sweep() noexcept;
    /// From here on every peer either reads what was written before, or had published before and is found by the next look.
    void barrier() noexcept;
    /// Transfers may copy again, first those of the link that had to wait.
    void renew_copies() noexcept;
    /// Nullptr: with the link that this one began with.
    bool begin_next_poll_with(pollable* first) noexcept;
    /// Looks at the marks of this link whenever memory is closed.
    void watch_touches(pollable& link) noexcept;
    /// Links with peers that have announced touches are among `touchers_` from here on.
    void take_touchers() noexcept;
    /// Peers that touch nothing now announce it when they do.
    void rest_touchers() noexcept;
    void look_at_touched() noexcept;
    /// Unless it is set.
    void set_timer(own_timer& timer, duration after) noexcept;
    void note_memory(pollable& link) noexcept;
    /// For a domain that is about to sleep: the memory of cold links is looked at in a second, if coroutines ran since the last such look.
    void look_at_memory_later() noexcept;
    void tidy() noexcept;

    [[nodiscard]] std::atomic<std::uint32_t>& asleep() noexcept;
    /// Of the entries alone; the page behind them has the word `asleep`.
    [[nodiscard]] static std::size_t entries_bytes(std::size_t entries) noexcept;
    [[nodiscard]] static std::size_t table_bytes(std::size_t entries) noexcept;
    [[nodiscard]] static unique_fd make_table(std::size_t entries);
    struct unmap_table {
        std::size_t entries;
        RDMACORO_DECL void operator()(region_entry* table) const noexcept;
    };
    using mapped_table = std::unique_ptr<region_entry, unmap_table>;
    /// Maps it, and then forbids any process, this one included, to map it for writing again.
    [[nodiscard]] static mapped_table map_table(int fd, std::size_t entries);

    // The members that each poll reads, on one cache line.
    alignas(64) intrusive_list<pollable> hot_;
    const std::atomic<std::uint64_t>* marks_ = &no_marks_;  // of the board, once there is one
    notice_reader notices_;
    unsigned polls_to_clock_ = 1;
    unsigned polls_between_clocks_ = 1;
    std::uint32_t last_serial_ = 0;

    scheduler& owner_;
    shm_options options_;
    unique_fd epoll_;
    unique_fd table_file_;
    mapped_table table_memory_;
    region_table regions_;
    arena arena_;
    mark_patience patience_;
    bool membarrier_;
    pid_t process_;  // that made it
    bool armed_ = false;
    bool look_now_ = true;
    bool copies_wait_ = false;        // for the next poll, to be renewed
    bool marks_cleared_ = false;      // all cold links are to be looked at
    unsigned awaited_ = 0;            // handlers for which an operation waits
    std::uint64_t clock_read_ = 0;    // in ticks, as the next two: when the clock was read last,
    std::uint64_t last_look_ = 0;     // when the descriptors were looked at,
    std::uint64_t last_cooling_ = 0;  // and when a round of cooling began
    std::atomic<std::uint64_t> no_marks_ = 0;
    // The hot links, by whether this round of cooling has still to look at them; those that became hot in it have been looked at.
    intrusive_list<pollable, cooling_tag> to_cool_;
    intrusive_list<pollable, cooling_tag> looked_at_;
    intrusive_list<pollable> cold_;
    std::size_t links_count_ = 0;
    std::size_t cold_count_ = 0;
    std::size_t to_sweep_ = 0;                  // cold links that are looked at without a mark
    plain_vector<pollable*> numbered_;          // by number less one; nullptr: free
    plain_vector<std::uint32_t> free_numbers_;  // has room for all numbers
    plain_vector<told> told_to_;                // by slot of a key
    intrusive_list<pollable, toucher_tag> touchers_;
    intrusive_list<pollable, touched_tag>
        touched_;  // with peers in the middle of memory that was told to them alone, and is closed
    own_timer touch_timer_;
    intrusive_list<pollable, tidy_tag> to_tidy_;
    std::size_t to_tidy_count_ = 0;
    std::size_t tidy_in_round_ = 0;
    own_timer tidy_timer_;
    bool look_at_memory_ = false;                      // of cold links, when the next round begins
    time_point looked_at_memory_ = time_point::min();  // as the scheduler saw the time
    copy_allowance copies_;
    pollable* next_to_copy_ = nullptr;
    due due_[most_due] = {};  // the batch that is being called,
    unsigned next_due_ = 0;   // from here on,
    unsigned due_count_ = 0;  // up to here
};

}  // namespace detail::shm
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/domain.ipp>
#endif
