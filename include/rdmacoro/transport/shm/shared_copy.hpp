// One block copied by both ends of a link at once: the receiver gets from the front, the sender puts from the back.
#pragma once

#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/one_sided.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace rdmacoro::detail::shm {

/// How a block is divided, and how much of it a side claims at a time: a quarter of what is left, so that there are few
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
/// A piece belongs to the side that claimed it, by one compare-and-swap. The back says after each piece how many of its own
/// are in place, so the front can complete without the back ever looking again. A back that can't copy a piece it has
/// claimed says that it has given up; the front then copies what the back left. Each side knows its own count: what the
/// words say of it, and everything that the other side writes there, is checked.
class shared_copy_engine {
public:
    shared_copy_engine(channel& link, one_sided_engine& one_sided) noexcept
        : link_(link), one_sided_(one_sided) {}
    shared_copy_engine(const shared_copy_engine&) = delete;
    shared_copy_engine& operator=(const shared_copy_engine&) = delete;

    [[nodiscard]] shared_copy_id open(std::size_t bytes) noexcept {
        const auto slot = static_cast<unsigned>(std::countr_one(open_));
        if (slot == shared_copies_open || !shared_pieces(bytes).countable()) return no_shared_copy;
        open_ |= std::uint64_t{1} << slot;
        shared_copy_words& words = link_.out_copies[slot];
        words.finished.store(0, std::memory_order_relaxed);
        words.claimed.store(0, std::memory_order_release);
        return slot;
    }
    void close(shared_copy_id id) noexcept {
        if (id < shared_copies_open) open_ &= ~(std::uint64_t{1} << id);
    }

    [[nodiscard]] post_result begin_front(shared_copy_id id, const remote_region& there, std::byte* into,
                                          completion& c) noexcept {
        // No pieces, nothing to share; whether the memory may be read is still looked at.
        if (there.length == 0) return one_sided_.begin(true, there, into, c);
        return begin(true, id < shared_copies_open ? &link_.in_copies[id] : nullptr, there, into, c);
    }
    [[nodiscard]] post_result begin_back(shared_copy_id id, const std::byte* from, const remote_region& there,
                                         completion& c) noexcept {
        // A put that the peer must serve would cost it more than the get that it is about to do.
        if (there.length == 0 || !link_.peer.reaches(there.address, there.length)) return post_result::done;
        return begin(false, id < shared_copies_open ? &link_.out_copies[id] : nullptr, there,
                     const_cast<std::byte*>(from), c);
    }

    /// False: `c` is none of ours.
    bool revoke(const completion& c) noexcept {
        job* found = of(active_, c);
        if (found == nullptr) found = of(turn_, c);
        if (found == nullptr) return false;
        give_back(*found);
        return true;
    }

    [[nodiscard]] bool idle() const noexcept { return active_.empty(); }
    /// The peer wrote what it may not.
    [[nodiscard]] bool violated() const noexcept { return violated_; }

    /// Goes on with each block; true when anything moved.
    bool advance() noexcept {
        bool any = false;
        // A completion that is called here may revoke another operation, begin one, or close the link.
        turn_.splice_back(active_);
        while (job* one = turn_.pop_front()) {
            active_.push_back(*one);
            any |= step(*one);
            if (violated_) {
                active_.splice_back(turn_);
                return true;
            }
            if (one->over) {
                finish(*one, make_error_code(one->status));
                any = true;
            }
        }
        return any;
    }

    /// Ends everything with `reason`; before the one-sided engine does.
    void fail_all(std::error_code reason) noexcept {
        active_.splice_back(turn_);
        while (job* one = active_.front()) finish(*one, reason);
    }

private:
    static constexpr std::size_t bytes_a_step = 1u << 20;  // copied between two looks at anything else
    static constexpr unsigned most_tries =
        16;  // of one claim in one step: the other side may be quick, or make fun of us

    struct job : list_node<job> {
        job() noexcept {
            part.done = [](completion& self, std::error_code outcome) noexcept {
                static_cast<part_completion&>(self).of->part_over(outcome);
            };
            part.of = this;
        }
        struct part_completion : completion {
            job* of;
        };
        void part_over(std::error_code outcome) noexcept {
            fetching = false;
            failure = outcome;
            next = until;
        }

        completion* done = nullptr;
        bool front = false;
        bool over = false;
        bool fetching = false;  // the peer serves a get of the pieces from `next` to `until`
        bool rescues = false;   // the pieces from `next` to `until` are those that the back left
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
                                    std::byte* local, completion& c) noexcept {
        job* made = take();
        if (made == nullptr) return post_result::retry;
        made->done = &c;
        made->front = front;
        made->over = made->fetching = made->rescues = false;
        made->there = there;
        made->local = local;
        made->words = words;
        made->pieces = shared_pieces(static_cast<std::size_t>(there.length));
        made->mine = made->theirs = made->back_finished = 0;
        made->next = made->until = 0;
        made->status = errc::ok;
        made->failure = {};
        active_.push_back(*made);
        if (words == nullptr || !made->pieces.countable()) {
            violated_ = true;  // the peer has named a block that there can't be
            return post_result::posted;
        }
        step(*made);
        if (made->over && made->status == errc::ok && !made->failure) {
            give_back(*made);
            return post_result::done;
        }
        return post_result::posted;
    }

    /// Copies up to `bytes_a_step`; true when anything moved.
    bool step(job& one) noexcept {
        bool any = false;
        for (std::size_t moved = 0; !one.over && !violated_;) {
            if (one.fetching) return any;
            if (one.failure) {
                one.over = true;
                break;
            }
            const std::uint64_t room = (bytes_a_step - std::min(moved, bytes_a_step)) / shared_pieces::piece;
            const bool enough = room == 0;
            if (one.next < one.until) {
                if (enough) return any;
                const std::size_t now = copy_claimed(one, room);
                if (now == 0) return any || one.over || one.fetching;
                moved += now;
            } else if (!find_work(one, room)) {
                return any || one.over;
            }
            any = true;
        }
        return any;
    }

    /// Copies this side's pieces, as many as it claims at a time; answers how many bytes that were, or 0 when there is nothing
    /// more to do in this step.
    [[nodiscard]] std::size_t copy_claimed(job& one, std::uint64_t room) noexcept {
        if (!link_.peer.reaches(one.there.address, one.there.length)) {
            fetch_served(one);
            return 0;
        }
        const std::uint64_t now = std::min({one.until - one.next, room, shared_pieces::most_claimed});
        const std::uint64_t first = one.front ? one.next : one.pieces.count - one.next - now;
        const std::size_t offset = one.pieces.offset(first);
        const std::size_t bytes = one.pieces.offset(first + now) - offset;
        const errc outcome =
            link_.touch(one.there, one.front ? access_rights::remote_read : access_rights::remote_write, [&] {
                return link_.peer.copy(one.front, one.there.address + offset, one.local + offset, bytes);
            });
        if (outcome == errc::ok) {
            one.next += now;
            if (!one.front) say_finished(one, one.back_finished += static_cast<std::uint32_t>(now));
            return bytes;
        }
        if (one.front && outcome == errc::unsupported) {
            fetch_served(one);
            return 0;
        }
        // The back's piece is the front's to copy from here on: when the kernel changed its mind, that is all.
        if (!one.front) say_finished(one, one.back_finished | gave_up);
        one.status = outcome == errc::unsupported ? errc::ok : outcome;
        one.over = true;
        return 0;
    }

    /// The word that the front waits for. It may sleep by now.
    void say_finished(job& one, std::uint64_t word) noexcept {
        one.words->finished.store(word, std::memory_order_release);
        link_.ring_doorbell();
    }

    /// The front's way where the peer's memory is out of reach: the peer serves all that it has claimed.
    void fetch_served(job& one) noexcept {
        const std::size_t offset = one.pieces.offset(one.next);
        const std::size_t bytes = one.pieces.offset(one.until) - offset;
        one.fetching = true;
        switch (one_sided_.begin(true, one.there.part(offset, bytes), one.local + offset, one.part)) {
            case post_result::done: one.part_over({}); break;
            case post_result::posted: break;
            default: one.fetching = false;  // no memory: again at the next poll
        }
    }

    /// Finds pieces to copy, or that there are none; false when there is nothing to do in this step. Between two steps nothing
    /// is claimed that is not copied, but what the peer serves; so a claim is made only when its copy follows.
    [[nodiscard]] bool find_work(job& one, std::uint64_t room) noexcept {
        if (!one.rescues) {
            for (unsigned tries = 0; tries < most_tries; ++tries) {
                const std::uint64_t word = one.words->claimed.load(std::memory_order_acquire);
                shared_claims seen = shared_claims::load(word);
                if (!plausible(one, seen)) return false;
                const std::uint64_t left = one.pieces.count - seen.both();
                if (left == 0) return one.front ? wait_for_back(one) : nothing_left(one);
                if (room == 0) return false;
                // Where the peer must serve, what it puts meanwhile would be no gain.
                const bool all = !link_.peer.reaches(one.there.address, one.there.length);
                if (all && !one.front) return nothing_left(one);
                const auto claim =
                    static_cast<std::uint32_t>(all ? left : std::min(room, shared_pieces::share_of(left)));
                (one.front ? seen.front : seen.back) += claim;
                std::uint64_t expected = word;
                if (!one.words->claimed.compare_exchange_strong(
                        expected, seen.store(), std::memory_order_acq_rel, std::memory_order_relaxed))
                    continue;
                one.next = one.mine;
                one.mine += claim;
                one.until = one.mine;
                return true;
            }
            return false;
        }
        one.over = true;  // what the back left is copied, too
        return false;
    }

    [[nodiscard]] bool plausible(job& one, const shared_claims& seen) noexcept {
        const std::uint32_t mine = one.front ? seen.front : seen.back;
        const std::uint32_t theirs = one.front ? seen.back : seen.front;
        if (mine != one.mine || theirs < one.theirs || seen.both() > one.pieces.count) {
            violated_ = true;
            return false;
        }
        one.theirs = theirs;
        return true;
    }

    static bool nothing_left(job& one) noexcept {
        one.over = true;
        return false;
    }

    /// Everything is claimed, and the front's share is copied.
    [[nodiscard]] bool wait_for_back(job& one) noexcept {
        const std::uint64_t word = one.words->finished.load(std::memory_order_acquire);
        const std::uint64_t finished = word & ~gave_up;
        if (finished > one.theirs || finished < one.back_finished) {
            violated_ = true;
            return false;
        }
        one.back_finished = static_cast<std::uint32_t>(finished);
        if (finished == one.theirs) {
            one.over = true;
            return false;
        }
        if ((word & gave_up) == 0) return false;
        one.rescues = true;
        one.next = one.pieces.count - one.theirs;
        one.until = one.pieces.count - finished;
        return true;
    }

    void finish(job& one, std::error_code outcome) noexcept {
        completion* c = one.done;
        if (one.failure) outcome = one.failure;
        give_back(one);
        c->done(*c, outcome);
    }

    [[nodiscard]] static job* of(intrusive_list<job>& list, const completion& c) noexcept {
        job* one = list.front();
        while (one != nullptr && one->done != &c) one = list.next(*one);
        return one;
    }
    [[nodiscard]] job* take() noexcept {
        if (job* recycled = free_.pop_front()) return recycled;
        try {
            owned_.push_back(std::make_unique<job>());
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
        return owned_.back().get();
    }
    void give_back(job& one) noexcept {
        if (one.fetching) one_sided_.revoke(one.part);
        one.fetching = false;
        one.unlink();
        free_.push_back(one);
    }

    // In `finished`, above the count: the back copies no more.
    static constexpr std::uint64_t gave_up = std::uint64_t{1} << 32;

    channel& link_;
    one_sided_engine& one_sided_;
    std::uint64_t open_ = 0;  // by slot: a block of ours is open there
    bool violated_ = false;
    intrusive_list<job> active_;
    intrusive_list<job> turn_;  // those that `advance` has yet to come to
    intrusive_list<job> free_;
    std::vector<std::unique_ptr<job>> owned_;
};

}  // namespace rdmacoro::detail::shm
