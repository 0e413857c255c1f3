// One block copied by both ends of a link at once: the receiver gets from the front, the sender puts from the back.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/one_sided.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace rdmacoro::detail::shm {

/// How a block is divided, and how much of it a side claims at a time: a quarter of the rest, so that there are few
/// claims, and little to wait for where the two sides meet.
struct shared_pieces {
    static constexpr std::size_t piece = 16384;  // bytes; the last piece may be shorter
    static constexpr std::uint64_t most_claimed = 32;
    static constexpr std::uint64_t least_claimed = 2;  // a claim and a system call for less cost too much

    std::size_t block = 0;  ///< bytes
    std::uint64_t count = 0;

    explicit constexpr shared_pieces(std::size_t bytes) noexcept
        : block(bytes), count(bytes / piece + (bytes % piece != 0 ? 1u : 0u)) {}

    /// How many of `left` pieces to claim.
    [[nodiscard]] static constexpr std::uint64_t share_of(std::uint64_t left) noexcept {
        return std::min(left, std::clamp(left / 4, least_claimed, most_claimed));
    }
    /// Where piece `n` begins; where the last ends for `count`.
    [[nodiscard]] constexpr std::size_t offset(std::uint64_t n) const noexcept {
        return n < count ? static_cast<std::size_t>(n) * piece : block;
    }
    [[nodiscard]] constexpr bool countable() const noexcept {
        return count <= std::numeric_limits<std::uint32_t>::max();
    }
};

/// The claim word of a block: pieces claimed from the front, and from the back.
struct shared_claims {
    std::uint32_t front = 0;
    std::uint32_t back = 0;

    [[nodiscard]] static constexpr shared_claims load(std::uint64_t word) noexcept {
        return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
    }
    [[nodiscard]] constexpr std::uint64_t store() const noexcept {
        return front | static_cast<std::uint64_t>(back) << 32;
    }
    [[nodiscard]] constexpr std::uint64_t both() const noexcept { return std::uint64_t{front} + back; }
};

/// The blocks of one link that both ends copy.
///
/// A piece belongs to the side that claimed it, by one compare-and-swap. The back publishes after each piece how many of its own
/// are in place, so the front can complete without the back ever looking again. A back that can't copy a piece it has
/// claimed publishes that it has given up; the front then copies those pieces. Each side knows its own count: the values
/// of it in the words, and everything that the other side writes there, are checked.
class shared_copy_engine {
public:
    shared_copy_engine(channel& link, one_sided_engine& one_sided) noexcept
        : link_(link), one_sided_(one_sided) {}
    shared_copy_engine(const shared_copy_engine&) = delete;
    shared_copy_engine& operator=(const shared_copy_engine&) = delete;
    ~shared_copy_engine();

    [[nodiscard]] shared_copy_id open(std::size_t bytes) noexcept;
    void close(shared_copy_id id) noexcept;

    [[nodiscard]] post_result begin_front(shared_copy_id id, const remote_region& there, std::byte* into,
                                          completion& c) noexcept;
    [[nodiscard]] post_result begin_back(shared_copy_id id, const std::byte* from, const remote_region& there,
                                         completion& c) noexcept;

    /// False: `c` belongs to no block of this link.
    bool revoke(const completion& c) noexcept;

    [[nodiscard]] bool idle() const noexcept { return active_.empty(); }
    /// Whether some wait for the next poll.
    [[nodiscard]] bool waits() const noexcept { return waits_; }
    /// The peer wrote impossible values.
    [[nodiscard]] bool violated() const noexcept { return violated_; }

    /// Goes on with each block in turn, as far as the domain's `copy_allowance` goes; true when anything moved.
    bool advance() noexcept;

    /// As those of `one_sided_engine`.
    [[nodiscard]] bool keeps_memory() const noexcept { return !free_.empty(); }
    void free_memory() noexcept;

    /// Ends everything with `reason`; before the one-sided engine does.
    void fail_all(std::error_code reason) noexcept;

private:
    // Of one claim in one step: the other side may be quick, or hostile.
    static constexpr unsigned most_tries = 16;

    struct job : list_node<job> {
        job() noexcept;
        struct part_completion : completion {
            job* of;
        };
        void part_over(std::error_code outcome) noexcept;

        completion* done = nullptr;
        bool front = false;
        bool over = false;
        bool fetching = false;  // the peer serves a get of the pieces from `next` to `until`
        bool rescues = false;   // the pieces from `next` to `until` were left by the back
        remote_region there{};
        std::byte* local = nullptr;
        shared_copy_words* words = nullptr;
        shared_pieces pieces{0};
        std::uint32_t mine = 0;           // pieces this side has claimed
        std::uint32_t theirs = 0;         // pieces the other side has claimed, as last read
        std::uint32_t back_finished = 0;  // as last read, or written
        std::uint64_t next = 0;           // pieces from here to `until` are this side's, and not copied yet
        std::uint64_t until = 0;
        errc status = errc::ok;
        std::error_code failure;
        part_completion part;
    };

    [[nodiscard]] post_result begin(bool front, shared_copy_words* words, const remote_region& there,
                                    std::byte* local, completion& c) noexcept;

    /// Copies as much as may be copied now; true when anything moved.
    bool step(job& one) noexcept;

    /// Copies this side's pieces, as many as it claims at a time; answers how many bytes that were, or 0 when there is nothing
    /// more to do in this step.
    [[nodiscard]] std::size_t copy_claimed(job& one, std::uint64_t room) noexcept;

    /// Publishes the word that the front waits for, and wakes the front if it sleeps.
    void send_finished(job& one, std::uint64_t word) noexcept;

    /// The front's way where the peer's memory is out of reach: the peer serves all that it has claimed.
    void fetch_served(job& one) noexcept;

    /// Claims pieces to copy; false when there is nothing to do in this step. Between two steps every claimed piece is
    /// copied, except pieces that the peer serves: a claim is made only when its copy follows.
    [[nodiscard]] bool find_work(job& one, std::uint64_t room) noexcept;

    [[nodiscard]] bool plausible(job& one, const shared_claims& seen) noexcept;

    static bool nothing_left(job& one) noexcept;

    /// Everything is claimed, and the front's share is copied.
    [[nodiscard]] bool wait_for_back(job& one) noexcept;

    void finish(job& one, std::error_code outcome) noexcept;

    [[nodiscard]] static job* of(intrusive_list<job>& list, const completion& c) noexcept;
    [[nodiscard]] job* take() noexcept;
    void give_back(job& one) noexcept;

    // In `finished`, above the count: the back copies no more.
    static constexpr std::uint64_t gave_up = std::uint64_t{1} << 32;

    channel& link_;
    one_sided_engine& one_sided_;
    std::uint64_t open_ = 0;  // by slot: a block of ours is open there
    bool violated_ = false;
    bool waits_ = false;
    intrusive_list<job> active_;
    intrusive_list<job> turn_;  // jobs that `advance` has yet to visit,
    intrusive_list<job> late_;  // and those that had nothing in it: the first of the next one
    intrusive_list<job> free_;
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/shared_copy.ipp>
#endif
