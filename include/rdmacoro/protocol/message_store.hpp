// Where messages are stored that came before their receive.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>

namespace rdmacoro::detail {

/// Memory of a stored message besides its record and its payload: the allocator's word, and its part of the matcher's two tables.
inline constexpr std::size_t stored_beside = 16 + 2 * 16;
static_assert(sizeof(unexpected_message) + stored_beside <= kept_message_overhead);
static_assert(sizeof(unexpected_message) % 16 == 0, "payload is aligned as memory from the heap is");

/// Blocks for stored messages: the memory that credits stand for. The blocks of released messages are used again, up to a limit
/// for all sizes together; so the store takes the sum of what its messages cost and that limit, whatever sizes they had before.
/// Counted, as lent messages may outlive the mailbox.
class message_store {
public:
    /// Holds the longest block that the default budget stores unasked.
    static constexpr std::size_t usual_idle = 2 * 1024 * 1024;

    /// `most_idle`: bytes of released blocks to hold for other messages; more than `usual_idle` are not.
    explicit message_store(std::size_t most_idle = usual_idle) noexcept
        : most_idle_(most_idle < usual_idle ? most_idle : usual_idle) {}
    message_store(const message_store&) = delete;
    message_store& operator=(const message_store&) = delete;

    /// A message with room for `payload` bytes, or nullptr when memory is short.
    [[nodiscard]] unexpected_message* make(std::size_t payload) noexcept;

    /// Gives a message back to the store that made it.
    static void release(unexpected_message& message) noexcept { message.home->free(message); }

    /// Hands the message's payload out; the block comes back when the borrower is done.
    [[nodiscard]] static lent_buffer lend(unexpected_message& message) noexcept;

    /// The owner is done with it; it is deleted with its last message.
    void abandon() noexcept;

    [[nodiscard]] std::size_t live() const noexcept { return live_; }

    /// Memory held, in use or not, in bytes, with everything that belongs to it.
    [[nodiscard]] std::size_t footprint() const noexcept { return live_bytes_ + idle_bytes_; }

private:
    struct idle_block {
        idle_block* next;
    };

    ~message_store() { drop_idle_above(0); }

    void free(unexpected_message& message) noexcept;
    /// Gives idle blocks back, of one size after the other, until no more than `bytes` are left.
    void drop_idle_above(std::size_t bytes) noexcept;
    /// The idle blocks of a size class that may be held.
    [[nodiscard]] idle_block*& idle_of(std::size_t block_bytes) noexcept;
    [[nodiscard]] std::byte* take_idle(std::size_t block_bytes) noexcept;

    static constexpr std::size_t classes =
        4 * 14;  // four for each doubling up to `usual_idle`; see `storage_bytes`

    std::size_t most_idle_;
    std::size_t idle_bytes_ = 0;
    std::size_t live_bytes_ = 0;
    std::size_t live_ = 0;
    std::size_t turn_ = 0;  // the class that gives back next
    bool abandoned_ = false;
    idle_block* idle_[classes]{};
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/impl/message_store.ipp>
#endif
