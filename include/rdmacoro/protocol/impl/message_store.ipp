// Bodies of message_store.hpp.
#pragma once

#include <rdmacoro/memory/detail/poison.hpp>
#include <rdmacoro/protocol/message_store.hpp>

#include <bit>
#include <new>

namespace rdmacoro::detail {

/// A size class includes what a message takes elsewhere.
inline constexpr std::size_t beside_block = kept_message_overhead - sizeof(unexpected_message);

RDMACORO_DECL unexpected_message* message_store::make(std::size_t payload) noexcept {
    const std::size_t bytes = storage_bytes(payload);
    if (bytes < payload) return nullptr;
    std::byte* block = bytes <= most_idle_ ? take_idle(bytes) : nullptr;
    if (block == nullptr) block = static_cast<std::byte*>(::operator new(bytes - beside_block, std::nothrow));
    if (block == nullptr) return nullptr;
    auto* made = ::new (static_cast<void*>(block)) unexpected_message;
    made->block_bytes = bytes;
    made->home = this;
    ++live_;
    live_bytes_ += bytes;
    return made;
}

RDMACORO_DECL lent_buffer message_store::lend(unexpected_message& message) noexcept {
    return lent_buffer(
        {message.payload(), message.stored},
        [](void* stored, std::uint64_t) noexcept { release(*static_cast<unexpected_message*>(stored)); },
        &message, 0);
}

RDMACORO_COLD void message_store::abandon() noexcept {
    abandoned_ = true;
    if (live_ == 0) {
        delete this;
    } else {
        drop_idle_above(most_idle_ = 0);
    }
}

RDMACORO_DECL void message_store::free(unexpected_message& message) noexcept {
    const std::size_t bytes = message.block_bytes;
    message.~unexpected_message();
    live_bytes_ -= bytes;
    if (bytes > most_idle_) {
        ::operator delete(static_cast<void*>(&message));
    } else {
        drop_idle_above(most_idle_ - bytes);
        idle_block*& idle = idle_of(bytes);
        idle = ::new (static_cast<void*>(&message)) idle_block{idle};
        poison(idle, bytes - beside_block);
        idle_bytes_ += bytes;
    }
    if (--live_ == 0 && abandoned_) delete this;
}

RDMACORO_DECL message_store::idle_block*& message_store::idle_of(std::size_t block_bytes) noexcept {
    const auto doubling = static_cast<std::size_t>(std::bit_width(block_bytes - 1) - 1);
    constexpr std::size_t first = 4 * 7;  // of blocks of 256 bytes
    return idle_[4 * doubling + (((block_bytes - 1) >> (doubling - 2)) & 3) - first];
}

RDMACORO_DECL std::byte* message_store::take_idle(std::size_t block_bytes) noexcept {
    idle_block*& idle = idle_of(block_bytes);
    idle_block* const taken = idle;
    if (taken == nullptr) return nullptr;
    unpoison(taken, block_bytes - beside_block);
    idle = taken->next;
    idle_bytes_ -= block_bytes;
    return reinterpret_cast<std::byte*>(taken);
}

RDMACORO_DECL void message_store::drop_idle_above(std::size_t bytes) noexcept {
    while (idle_bytes_ > bytes) {
        if (idle_[turn_] == nullptr) {
            turn_ = (turn_ + 1) % classes;
            continue;
        }
        // The inverse of what `idle_of` does.
        const std::size_t step = std::size_t{32} << (turn_ / 4);
        const std::size_t class_bytes = step * (4 + turn_ % 4 + 1);
        ::operator delete(static_cast<void*>(take_idle(class_bytes)));
    }
}

}  // namespace rdmacoro::detail
