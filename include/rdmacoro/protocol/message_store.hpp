// Where messages wait that came before their receive.
#pragma once

#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/memory/slab_pool.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <bit>
#include <cstddef>
#include <new>
#include <optional>
#include <vector>

namespace rdmacoro::detail {

static_assert(sizeof(unexpected_message) <= kept_message_overhead);

/// Blocks for kept messages, in recycled size classes: the memory that credits stand for. Counted, as lent messages may
/// outlive the mailbox.
class message_store {
public:
    message_store() = default;
    message_store(const message_store&) = delete;
    message_store& operator=(const message_store&) = delete;

    /// A message with room for `payload` bytes, or nullptr when memory is short.
    [[nodiscard]] unexpected_message* make(std::size_t payload) noexcept {
        const std::size_t bytes = storage_bytes(payload);
        slab_pool* pool = pool_for(bytes);
        std::byte* block = pool == nullptr ? nullptr : pool->take();
        if (block == nullptr) return nullptr;
        auto* made = ::new (static_cast<void*>(block)) unexpected_message;
        made->block_bytes = bytes;
        made->home = this;
        ++live_;
        return made;
    }

    /// Gives a message back to the store that made it.
    static void release(unexpected_message& message) noexcept { message.home->free(message); }

    /// Hands the message's payload out; the block comes back when the borrower is done.
    [[nodiscard]] static lent_buffer lend(unexpected_message& message) noexcept {
        return lent_buffer(
            {message.payload(), message.stored},
            [](void* kept, std::uint64_t) noexcept { release(*static_cast<unexpected_message*>(kept)); },
            &message, 0);
    }

    /// The owner is done with it; goes when the last message has.
    void abandon() noexcept {
        abandoned_ = true;
        if (live_ == 0) delete this;
    }

    [[nodiscard]] std::size_t live() const noexcept { return live_; }

    /// Memory held, in use or not, in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept {
        std::size_t bytes = 0;
        for (const auto& pool : pools_) {
            if (pool) bytes += pool->capacity() * pool->block_bytes();
        }
        return bytes;
    }

private:
    ~message_store() = default;

    void free(unexpected_message& message) noexcept {
        slab_pool* pool = pool_for(message.block_bytes);
        message.~unexpected_message();
        pool->give(reinterpret_cast<std::byte*>(&message));
        if (pool->in_use() == 0 && pool->capacity() * pool->block_bytes() > keep_idle_bytes) pool->trim();
        if (--live_ == 0 && abandoned_) delete this;
    }

    static constexpr std::size_t slab_bytes = 64 * 1024;
    // Of one class, with nothing in it; the longest block of the default budget (1 MiB unasked, in its class) is kept.
    static constexpr std::size_t keep_idle_bytes = 2 * 1024 * 1024;
    static constexpr std::size_t classes = 4 * 64;

    /// Four classes for each doubling; see `storage_bytes`.
    [[nodiscard]] static std::size_t class_of(std::size_t bytes) noexcept {
        const auto doubling = static_cast<std::size_t>(std::bit_width(bytes - 1) - 1);
        return 4 * doubling + (((bytes - 1) >> (doubling - 2)) & 3);
    }

    [[nodiscard]] slab_pool* pool_for(std::size_t bytes) noexcept {
        std::optional<slab_pool>& pool = pools_[class_of(bytes)];
        if (!pool)
            pool.emplace(bytes, bytes >= slab_bytes ? 1 : slab_bytes / bytes,
                         static_cast<std::size_t>(-1) / 2);
        return &*pool;
    }

    std::vector<std::optional<slab_pool>> pools_{classes};
    std::size_t live_ = 0;
    bool abandoned_ = false;
};

}  // namespace rdmacoro::detail
