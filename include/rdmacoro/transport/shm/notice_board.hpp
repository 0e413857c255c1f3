// Where the peers of a domain mark links that have news, or over which they touch memory: a bit for each link, and a bit for each
// thousand links.
#pragma once

#include <rdmacoro/transport/shm/segment.hpp>

#include <atomic>
#include <bit>
#include <cstdint>

namespace rdmacoro::detail::shm {

/// Lies in front of the arena of the domain that reads it, in memory that each of its peers can write: a bit that is set
/// without cause costs the reader one look at a link, and one that a hostile peer clears delays news until the reader's
/// sweep, see `domain_base`.
///
/// A domain polls only the links that had news lately. For each other link it writes the link's number, plus one, to
/// `direction_words::notice`; it then passes a full barrier and looks at the link's ring once more. The peer publishes a
/// record, passes the same barrier (see `channel::ring_doorbell`), and reads that word. One of the two sees the other: the
/// domain the record, or the peer the number; then the peer marks the link here. The bit of the link is set before that of
/// its group, and the reader clears them in the opposite order, before it polls the link: a mark that comes later than that
/// is found by the next look.
///
/// Before the domain sleeps it sets its `asleep` word, which peers can't write, passes a full barrier and looks at the board
/// once more. The peer marks, passes a full barrier, and reads `asleep`: either the domain sees the mark, or the peer sees
/// that it must ring the doorbell.
struct notice_board {
    static constexpr std::uint32_t links_in_word = 64;
    static constexpr std::uint32_t words_in_group = 16;
    static constexpr std::uint32_t links_in_group = links_in_word * words_in_group;
    static constexpr std::uint32_t groups = 64;
    static constexpr std::uint32_t most_links = groups * links_in_group;

    alignas(64) std::atomic<std::uint64_t> marked_groups;
    alignas(64) std::atomic<std::uint64_t> marked_links[most_links / links_in_word];

    /// A link of the reader has news. `link` is less than `most_links`.
    void mark(std::uint32_t link) noexcept {
        marked_links[link / links_in_word].fetch_or(std::uint64_t{1} << link % links_in_word,
                                                    std::memory_order_seq_cst);
        marked_groups.fetch_or(std::uint64_t{1} << link / links_in_group, std::memory_order_seq_cst);
    }
    /// Whether the first of the two bits of such a mark is set.
    [[nodiscard]] bool marked(std::uint32_t link) const noexcept {
        return (marked_links[link / links_in_word].load(std::memory_order_relaxed) >> link % links_in_word &
                1) != 0;
    }
    /// As `mark`, cheap where the mark stands still. For marks that no other side sets.
    void keep_marked(std::uint32_t link) noexcept {
        const std::uint64_t bit = std::uint64_t{1} << link % links_in_word;
        const std::uint64_t group = std::uint64_t{1} << link / links_in_group;
        // A peer that was killed within `mark` leaves the first of the two for the next link of that number.
        if ((marked_links[link / links_in_word].load(std::memory_order_relaxed) & bit) == 0 ||
            (marked_groups.load(std::memory_order_relaxed) & group) == 0)
            mark(link);
    }

    /// Takes all marks that were set before, and calls `each` with the number of each.
    template <class Each>
    void take_all(Each each) noexcept {
        std::uint64_t open = marked_groups.exchange(0, std::memory_order_seq_cst);
        for (; open != 0; open &= open - 1) {
            const std::uint32_t first = static_cast<std::uint32_t>(std::countr_zero(open)) * words_in_group;
            for (std::uint32_t word = first; word < first + words_in_group; ++word) {
                if (marked_links[word].load(std::memory_order_relaxed) == 0) continue;
                std::uint64_t links = marked_links[word].exchange(0, std::memory_order_seq_cst);
                for (; links != 0; links &= links - 1)
                    each(word * links_in_word + static_cast<std::uint32_t>(std::countr_zero(links)));
            }
        }
    }
};

/// The boards of a domain.
struct notice_boards {
    notice_board news;
    /// Peers that may be touching memory of the domain's, see `domain_base::deregister`. The domain writes a link's number, plus one, to
    /// `direction_words::touch_notice`, passes a full barrier, and looks for a mark in `direction_words::region_in_use`. The peer sets
    /// that mark, passes the same barrier, and reads the number: if there is one, it marks the link here before it looks at the table of
    /// regions. So either the domain sees the peer's mark, or it finds the link here the next time it closes memory.
    notice_board touches;
};
inline constexpr std::size_t notice_board_bytes =
    (sizeof(notice_boards) + page_bytes - 1) / page_bytes * page_bytes;

/// The reader's position on its board.
class notice_reader {
public:
    [[nodiscard]] bool any(const notice_board& board) const noexcept { return any(board.marked_groups); }
    [[nodiscard, gnu::always_inline]] bool
    any(const std::atomic<std::uint64_t>& marked_groups) const noexcept {
        return (open_ | marked_groups.load(std::memory_order_relaxed)) != 0;
    }

    /// Takes the marks of at most 64 links, and calls `each` with the number of each: however many marks peers set, one call is
    /// short. Every group that was marked has its turn before any has another.
    template <class Each>
    void take(notice_board& board, Each each) noexcept {
        if (open_ == 0) open_ = board.marked_groups.exchange(0, std::memory_order_seq_cst);
        for (; open_ != 0; open_ &= open_ - 1, word_ = 0) {
            const std::uint32_t first =
                static_cast<std::uint32_t>(std::countr_zero(open_)) * notice_board::words_in_group;
            while (word_ < notice_board::words_in_group) {
                const std::uint32_t word = first + word_++;
                auto& marked = board.marked_links[word];
                if (marked.load(std::memory_order_relaxed) == 0) continue;
                std::uint64_t links = marked.exchange(0, std::memory_order_seq_cst);
                for (; links != 0; links &= links - 1) {
                    each(word * notice_board::links_in_word +
                         static_cast<std::uint32_t>(std::countr_zero(links)));
                }
                return;
            }
        }
    }

private:
    std::uint64_t open_ = 0;  // groups with marks that are still to be taken; the lowest is being read
    std::uint32_t word_ = 0;  // of that group, the next one
};

}  // namespace rdmacoro::detail::shm
