// One direction of a shared-memory link: a ring of 64-byte cells for small records, and blocks for larger payloads.
//
// A record is a frame word (turn, type, length), twelve header bytes and the payload. Up to 48 bytes of payload it is one
// cell: one cache line moves, published by one release store. Up to `most_in_ring` bytes it takes several cells in a
// row. Above that the payload lies in a block and the record names it; a block can be lent without holding up the ring.
//
// The turn in the frame word distinguishes this lap's records from the last's, so that no index is read to find a message.
// A cell in the middle of a longer record holds payload that could look like a frame word a lap later: the producer
// remembers such cells and clears each before it publishes the record in front of it.
//
// The consumer unshares each line that it has read: it writes a word of it before it gives it back. Then the line is in no cache but its
// own, and the producer can take it early (`prefetchw`), many at a time. See docs/architecture.md.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/shm/block_writes.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <atomic>
#include <bitset>
#include <cstdint>
#include <cstring>

namespace rdmacoro::detail::shm {

/// The purpose of a record.
enum class record_type : std::uint32_t {
    message = 0,      ///< header and payload in the ring
    block = 1,        ///< header in the ring, payload in the block named by the four bytes after it
    get_request = 2,  ///< the rest: one-sided operations served by the peer (see one_sided.hpp)
    get_reply = 3,
    put_request = 4,
    put_reply = 5,
};

/// The frame word: 8 bits of turn, 4 of type, 20 of payload length in bytes.
struct frame_word {
    static constexpr std::uint32_t length_mask = (1u << 20) - 1;
    static constexpr std::uint32_t turns = 255;  // 1 to 255; 0 is a cell never written, or cleared

    [[nodiscard]] static constexpr std::uint32_t make(std::uint32_t turn, record_type type,
                                                      std::size_t length) noexcept {
        return turn << 24 | static_cast<std::uint32_t>(type) << 20 | static_cast<std::uint32_t>(length);
    }
    [[nodiscard]] static constexpr std::uint32_t turn(std::uint32_t word) noexcept { return word >> 24; }
    [[nodiscard]] static constexpr record_type type(std::uint32_t word) noexcept {
        return static_cast<record_type>((word >> 20) & 15u);
    }
    [[nodiscard]] static constexpr std::size_t length(std::uint32_t word) noexcept {
        return word & length_mask;
    }
    [[nodiscard]] static constexpr std::uint32_t next_turn(std::uint32_t turn) noexcept {
        return turn == turns ? 1 : turn + 1;
    }
};

inline constexpr std::size_t record_prefix = 4 + message_header_bytes;
inline constexpr std::size_t most_in_cell = cell_bytes - record_prefix;
inline constexpr std::size_t most_in_ring = 1024 - record_prefix;

[[nodiscard]] constexpr std::uint32_t cells_for(std::size_t payload) noexcept {
    return static_cast<std::uint32_t>((record_prefix + payload + cell_bytes - 1) / cell_bytes);
}

class ring_consumer;

/// The writing end.
class ring_producer {
public:
    ring_producer() noexcept = default;
    ring_producer(const ring_producer&) = delete;
    ring_producer& operator=(const ring_producer&) = delete;
    ~ring_producer() { delete[] middle_; }

    /// `beside`: the reading end of the same link; nullptr: messages go one way.
    void attach(segment& shared, unsigned direction, const ring_consumer* beside = nullptr);

    [[nodiscard]] std::size_t max_message() const noexcept { return block_bytes_; }

    /// Whether there is room again, for any record and enough of them to be worth another try: a quarter of the ring.
    /// Sets `violated` when the peer's words make no sense.
    [[nodiscard]] bool has_room() noexcept;

    /// Writes and publishes one record; false when there is no room.
    [[gnu::always_inline]] bool put(record_type type, const message_header& header,
                                    const const_buffers& payload) noexcept {
        const std::size_t bytes = payload.size();
        if (bytes <= most_in_cell && payload.contiguous()) [[likely]] {
            if (tail_ - freed_ + 2 > cells_ && !refreshed_room(1)) [[unlikely]]
                return false;
            std::byte* cell = next_cell();
            copy_header(cell, header);
            copy_bytes(cell + record_prefix, payload.front().data(), bytes);
            publish(cell, type, bytes, 1);
            return true;
        }
        return put_long(type, header, payload);
    }

    [[nodiscard]] bool violated() const noexcept { return violated_; }
    /// Whether the next long block is to be written past the caches.
    [[nodiscard]] bool writes_past_caches() const noexcept { return writes_.past_caches(); }
    /// Whether the consumer has surely not read all records. False is no proof while it polls: then it gives back an eighth of the ring
    /// at a time, and may keep half of the blocks.
    [[nodiscard]] bool unread() const noexcept;
    /// See `direction_words::notice`.
    [[nodiscard]] std::uint32_t notice_wanted() const noexcept {
        return words_->notice.load(std::memory_order_relaxed);
    }
    /// Counts the cells that were written; wraps around.
    [[nodiscard]] std::uint32_t position() const noexcept { return tail_; }
    /// How many cells ahead of the record that it writes it takes a line from the consumer's core: more where messages go one way.
    [[nodiscard]] std::uint32_t cells_ahead() const noexcept { return ahead_; }
    /// See `direction_words::announced`.
    void announce() noexcept { words_->announced.store(tail_, std::memory_order_release); }
    /// Whether something was written since all memory was returned.
    [[nodiscard]] bool holds_memory() const noexcept { return tail_ != returned_ || blocks_used_; }
    /// Whether `return_memory` could return some: something was written since its last call, or the consumer has given back more.
    [[nodiscard]] bool may_return() const noexcept;
    /// Returns the memory of cells and blocks to the system that the consumer has given back: they read as zeros, as if never written.
    /// Calls the system only where the consumer has given back more since the last call. False: it has yet to give back some. One that
    /// polls gives back all only when it is quiet.
    bool return_memory() noexcept;

private:
    // For `cells_ahead`. Where messages go both ways the consumer reads right behind the producer, and its hardware
    // prefetcher takes lines back that are not written soon: on one processor 16 ahead cost bench/calls a quarter of its rate. One way,
    // and between cores that are far from each other, a line takes as long as ten messages there: fewer are late, more gain nothing.
    // On others 1 to 16 are alike. See bench/README.md.
    static constexpr std::uint32_t ahead_both_ways = 3;
    static constexpr std::uint32_t ahead_one_way = 16;

    [[nodiscard]] std::byte* next_cell() noexcept {
        return ring_ + std::size_t{tail_ & (cells_ - 1)} * cell_bytes;
    }

    /// One cell more than the record needs stays free: the one that may have to be cleared.
    bool refreshed_room(std::uint32_t cells) noexcept;

    void refresh() noexcept;

    bool put_long(record_type type, const message_header& header, const const_buffers& payload) noexcept;

    /// In the pieces it was put together from: a processor forwards no load that spans two stores.
    [[gnu::always_inline]] static void copy_header(std::byte* cell, const message_header& header) noexcept {
        std::memcpy(cell + 4, header.data(), 4);
        std::memcpy(cell + 8, header.data() + 4, 8);
    }

    [[gnu::always_inline]] void publish(std::byte* cell, record_type type, std::size_t bytes,
                                        std::uint32_t cells) noexcept {
        const std::uint32_t after = tail_ + cells;
        if (any_middle_ && is_middle(after)) [[unlikely]]
            clear(after);
        std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(cell))
            .store(frame_word::make(turn_, type, bytes), std::memory_order_release);
        if (((tail_ ^ after) & cells_) != 0) [[unlikely]]
            end_lap();
        tail_ = after;
        for (std::uint32_t n = 0; n < cells; ++n) take_line(after + ahead_ + n);
    }

    /// The records behind this one are of the next lap.
    void end_lap() noexcept;

    // The line of a cell was last read by the consumer. To write it this core must first take it away from there, which
    // takes as long as a message and stops the stores behind it: begun early, it is done in time.
    void take_line(std::uint32_t position) noexcept {
        const std::byte* line = ring_ + std::size_t{position & (cells_ - 1)} * cell_bytes;
#if defined(__x86_64__)
        asm volatile("prefetchw %0"
                     :
                     : "m"(*line));  // the builtin would only read, for a processor of unknown make
#else
        __builtin_prefetch(line, 1, 3);
#endif
    }

    [[nodiscard]] bool is_middle(std::uint32_t position) const noexcept {
        const std::uint32_t cell = position & (cells_ - 1);
        return (middle_[cell / 64] >> (cell % 64) & 1) != 0;
    }
    void set_middle(std::uint32_t position) noexcept {
        const std::uint32_t cell = position & (cells_ - 1);
        middle_[cell / 64] |= std::uint64_t{1} << (cell % 64);
        any_middle_ = true;
    }
    void clear(std::uint32_t position) noexcept;

    std::byte* ring_ = nullptr;
    std::uint32_t tail_ = 0;   // position of the next record; positions count cells and wrap at 2^32
    std::uint32_t freed_ = 0;  // up to where the consumer has given back, as last read
    std::uint32_t cells_ = 0;
    std::uint32_t ahead_ = ahead_both_ways;
    std::uint32_t turn_ = 1;
    bool any_middle_ = false;
    bool violated_ = false;
    bool blocks_used_ = false;    // since their memory was returned
    std::uint32_t returned_ = 0;  // the memory of all cells before it was
    std::uint32_t tried_ = 0;     // `tail_` when memory was to be returned last
    const ring_consumer* beside_ = nullptr;
    std::uint32_t read_ = 0;  // its position when this lap began
    direction_words* words_ = nullptr;
    std::byte* blocks_ = nullptr;
    std::size_t block_bytes_ = 0;
    std::uint32_t blocks_returned_ = 0;
    std::uint64_t* middle_ = nullptr;  // a bit for each cell
    std::uint32_t block_count_ = 0;
    std::uint32_t free_count_ = 0;
    static_assert(geometry::most_blocks - 1 <= 0xff);
    std::uint8_t free_blocks_[geometry::most_blocks];  // the first `free_count_`
    std::bitset<geometry::most_blocks> lent_;          // by block: the consumer has it
    std::bitset<geometry::most_blocks> timed_;         // by block: its last payload counts for `writes_`
    std::bitset<geometry::most_blocks> past_caches_;   // by block: it was written so
    write_choice writes_;
};

/// A consumer's view of the head of its ring.
struct record {
    record_type type = record_type::message;
    const message_header* header = nullptr;  ///< in shared memory: read each byte once
    std::span<const std::byte> payload{};
    std::uint32_t cells = 0;
    std::int32_t block = -1;  ///< the block the payload lies in, or -1
    bool in_caches = false;   ///< the producer says that it wrote the block by ordinary stores

    /// The bytes for `unshare_block`, if the record lies in a block.
    [[nodiscard]] std::size_t bytes_to_unshare() const noexcept { return in_caches ? payload.size() : 0; }
};

/// The reading end. Checks every value that it reads from shared memory.
class ring_consumer {
public:
    enum class found : std::uint8_t { nothing, record, violation };

    void attach(segment& shared, unsigned direction);

    /// A message of one cell.
    struct small {
        const message_header* header;
        std::span<const std::byte> payload;
    };

    /// The message at the head, if there is one and it lies in one cell: the shortest path, for the most frequent case.
    [[gnu::always_inline]] bool small_message(small& out) noexcept {
        std::byte* cell = head_cell();
        const std::uint32_t word = load_word(cell);
        const std::uint32_t bytes = word - (turn_ << 24);  // the length, if turn and type match a message
        if (bytes > most_in_cell) return false;
        out.header = reinterpret_cast<const message_header*>(cell + 4);
        out.payload = {cell + record_prefix, bytes};
        return true;
    }

    /// Whether the head shows no record of this lap.
    [[gnu::always_inline]] bool nothing_new() noexcept {
        return frame_word::turn(load_word(head_cell())) != turn_;
    }

    /// Whether the producer gave notice of records that were not read. Does not touch the ring.
    [[nodiscard]] bool announced() const noexcept {
        // Any value further ahead is an old notice: positions wrap.
        return words_->announced.load(std::memory_order_acquire) - head_ - 1 < cells_;
    }

    /// Looks at the head. A record stays there until `advance`.
    found peek(record& out) noexcept;

    /// The record at the head is consumed. With `keep_block` its block stays the reader's until `free_block`. `cost`: of reading the
    /// block and `unshare_block`, by `store_cost`; 0: not known.
    void advance(const record& consumed, bool keep_block, std::uint8_t cost = 0) noexcept;

    /// The message of one cell at the head, which `small_message` gave, is consumed.
    [[gnu::always_inline]] void advance_small() noexcept {
        unshare_line(head_cell());
        step(1);
    }

    /// Whether another block may be lent: at most half of them, so that the rest keep messages moving.
    [[nodiscard]] bool may_keep() const noexcept { return held_count_ < block_count_ / 2; }

    /// Before `advance`, or `free_block`, once its first `bytes` were read. Not of a block that was written past the caches: that would only
    /// bring its lines into this one.
    void unshare_block(std::uint32_t block, std::size_t bytes) noexcept;

    void free_block(std::uint32_t block, std::uint8_t cost = 0) noexcept;

    /// Whether cells or blocks were given back since the last call: a producer that sleeps may wait for them.
    [[nodiscard, gnu::always_inline]] bool take_gave_back() noexcept {
        if (!gave_back_) [[likely]]
            return false;
        gave_back_ = false;
        return true;
    }

    /// Our memory is out of the peer's reach from here on, once `region_in_use` has been 0.
    void set_closed() noexcept;
    /// See `direction_words::notice`. A consumer that no longer polls gives back all cells that it has read: so its producer can tell
    /// for descriptions whether it has read everything.
    void want_notice(std::uint32_t word) noexcept {
        if (word != 0) give_back();
        words_->notice.store(word, std::memory_order_relaxed);
    }
    /// Gives back all cells that were read, also those of an eighth that is not full.
    void give_back() noexcept {
        if (words_->cells_freed.load(std::memory_order_relaxed) != head_)
            words_->cells_freed.store(head_, std::memory_order_release);
    }
    /// See `direction_words::touch_notice`.
    void want_touch_notice(std::uint32_t word) noexcept {
        words_->touch_notice.store(word, std::memory_order_relaxed);
    }
    /// Counts the cells that were read; wraps around.
    [[nodiscard]] std::uint32_t position() const noexcept { return head_; }
    /// The key of this side's region that the peer is reading or writing right now, or 0.
    [[nodiscard]] std::uint64_t region_in_use() const noexcept {
        return words_->region_in_use.load(std::memory_order_acquire);
    }

private:
    void publish(std::uint32_t before) noexcept;

    [[gnu::always_inline]] std::byte* head_cell() noexcept {
        return ring_ + std::size_t{head_ & (cells_ - 1)} * cell_bytes;
    }
    [[gnu::always_inline]] static std::uint32_t load_word(std::byte* cell) noexcept {
        return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(cell))
            .load(std::memory_order_acquire);
    }

    /// See the head of this file.
    [[gnu::always_inline]] static void unshare_line(std::byte* line) noexcept {
        std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(line))
            .store(0, std::memory_order_relaxed);
    }

    [[gnu::always_inline]] void step(std::uint32_t cells) noexcept {
        const std::uint32_t before = head_;
        head_ += cells;
        // An eighth of the ring at a time; the end of a lap is the end of an eighth.
        if (((before ^ head_) & ~eighth_mask_) != 0) [[unlikely]]
            publish(before);
    }

    found describe(record& out, std::byte* cell, record_type type, std::size_t bytes) noexcept;

    std::byte* ring_ = nullptr;
    std::uint32_t head_ = 0;
    std::uint32_t cells_ = 0;
    std::uint32_t turn_ = 1;
    std::uint32_t last_turn_ = frame_word::turns + 1;  // none yet: matches no word
    std::uint32_t eighth_mask_ = 0;
    bool gave_back_ = false;
    direction_words* words_ = nullptr;
    std::byte* blocks_ = nullptr;
    std::size_t block_bytes_ = 0;
    std::uint32_t blocks_freed_ = 0;
    std::uint32_t held_count_ = 0;
    std::uint32_t block_count_ = 0;
    std::bitset<geometry::most_blocks> held_;  // by block: it is ours
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/ring.ipp>
#endif
